"""As tests/durability, many times over."""

from pathlib import Path

from tests.durability.killing import run
from tests.durability.load import PARTITION_COUNT

KILL_COUNT = 100


def test_a_hundred_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, kill_count=KILL_COUNT)
    assert outcome.lost_answer_count > 0, "some kills fell between append and acknowledgement"
    assert outcome.resumed_count >= PARTITION_COUNT, "each partition was read by the group"
    print(f"{KILL_COUNT} kills, {outcome.record_count} records, {outcome.resumed_count} partitions resumed")
