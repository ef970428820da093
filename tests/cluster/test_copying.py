"""Read, process and write in transactions over kills; ``make torture`` does it for longer, with Kafka's own copier beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.copying import ROLES, kill_all, run


@pytest.mark.parametrize("is_group", [False, True])
@pytest.mark.slow
def test_a_copy_in_transactions_is_the_original_whatever_coordinator_leader_or_copier_is_killed(tmp_path: Path, is_group: bool) -> None:
    """Mechanism 78 on three nodes: librdkafka at level 1 and our own client at level 2."""
    outcome = run(tmp_path, is_group=is_group, round_count=len(ROLES))
    print(outcome)
    assert len(outcome.disturbances) == len(ROLES)


@pytest.mark.slow
def test_a_copy_in_transactions_is_the_original_when_all_nodes_are_killed(tmp_path: Path) -> None:
    print(run(tmp_path, round_count=1, disturb=kill_all))
