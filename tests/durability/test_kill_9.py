"""A broker process dies by kill -9 under load and comes back on the same directory and port (mechanisms 50 and 58)."""

from pathlib import Path

import pytest
from tests.durability.killing import run
from tests.durability.load import PARTITION_COUNT

KILL_COUNT = 10


@pytest.mark.slow
def test_mechanisms_50_and_58_nothing_acknowledged_is_lost_or_doubled_and_the_group_resumes_at_its_commits(tmp_path: Path) -> None:
    outcome = run(tmp_path, kill_count=KILL_COUNT)
    assert outcome.lost_answer_count > 0, "some kills fell between append and acknowledgement"
    assert outcome.resumed_count >= PARTITION_COUNT, "each partition was read by the group"
