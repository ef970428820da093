"""Nodes come and go under clients that produce, read in a group and commit: nothing acknowledged is lost, nothing stops for good."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.following_nodes import explore_following

SEEDS = int(os.environ.get("OTTLA_SEEDS", "6"))
BLOCKS = 3


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.slow
def test_records_and_commits_outlive_their_brokers_absence(block: int) -> None:
    states: Counter[str] = Counter()
    acknowledged = 0
    for seed in range(block, SEEDS, BLOCKS):
        found = explore_following(seed)
        assert not found.findings, f"seed {seed}: {found.findings[:5]}"
        states.update(found.states)
        acknowledged += sum(map(len, found.produced.values()))
        assert found.committed
    print(acknowledged, dict(states))
    assert acknowledged > 2000
    assert sum(count for name, count in states.items() if name.startswith("trouble")) > 5


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_following(1).digest == explore_following(1).digest
