"""As tests/cluster/test_replicated_kills.py, many times over."""

from pathlib import Path

from tests.cluster.replicated_killing import run

KILL_COUNT = 200


def test_two_hundred_kills_lose_and_double_nothing_and_the_replicas_are_equal(tmp_path: Path) -> None:
    print(run(tmp_path, kill_count=KILL_COUNT))
