"""Leaders, followers and controllers are killed under load; ``make torture`` does it two hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.replicated_killing import run


@pytest.mark.slow
def test_no_acknowledged_record_or_commit_is_lost_or_doubled_and_the_replicas_are_equal(tmp_path: Path) -> None:
    """Mechanisms 19, 20, 22, 30, 38, 39, 58: librdkafka, aiokafka and our own client, on default timeouts."""
    outcome = run(tmp_path, kill_count=6)
    print(outcome)
    assert min(outcome.kills.values()) == 2
