"""The active controller is killed under load; ``make torture`` does it a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.killing import run


@pytest.mark.slow
def test_no_acknowledged_change_is_lost_and_none_is_half_applied(tmp_path: Path) -> None:
    """Mechanism 33, on default timeouts."""
    outcome = run(tmp_path, kill_count=4)
    print(outcome)
    assert outcome.change_count >= 60
