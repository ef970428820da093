"""As tests/cluster/test_killing.py, many times over."""

from pathlib import Path

from tests.cluster.killing import run

KILL_COUNT = 100


def test_a_hundred_kills_of_the_active_controller_lose_no_acknowledged_change(tmp_path: Path) -> None:
    print(run(tmp_path, kill_count=KILL_COUNT))
