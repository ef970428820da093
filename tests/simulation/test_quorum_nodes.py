"""A cluster of shipped nodes in the simulated world: whatever happens to one node at a time, no acknowledged change is lost."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.quorum_nodes import explore_quorum

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))
BLOCKS = 3


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_acknowledged_change_is_lost_and_all_nodes_agree_in_the_end(block: int) -> None:
    states: Counter[str] = Counter()
    acknowledged = 0
    for seed in range(block, SEEDS, BLOCKS):
        found = explore_quorum(seed)
        assert not found.findings, f"seed {seed}: {found.findings}"
        states.update(found.states)
        acknowledged += len(found.acknowledged)
    print(acknowledged, dict(states))
    assert acknowledged > 100
    assert states["controller_active"] > 1


def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_quorum(7).digest == explore_quorum(7).digest
