"""Replicated partitions of shipped nodes in the simulated world: what acks=all has acknowledged is kept, once and in order.

Nothing is told before it is committed, nothing is read that is not kept, and every decision of the controllers is sound.

``OTTLA_SEEDS`` are explored in three blocks; the share of ``make test`` is about 20 s.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.replicated_nodes import explore_replication

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))
BLOCKS = 3
RARE = (
    "active controller killed",
    "broker_fenced",
    "commits",
    "controller_active",
    "isr_changed",
    "moves begun",
    "moves taken back",
    "power lost by one of those that die together",
    "records deleted everywhere",
    "records not deleted: NOT_LEADER_OR_FOLLOWER",
    "records not deleted: REQUEST_TIMED_OUT",
    "records read",
    "replica_truncated",
    "trouble: power cut",
    "trouble: stopped",
    "unclean_leader_elected",
)
"""What many seeds together must have met: otherwise they say nothing about it."""
MANY = 60


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_acks_all_has_acknowledged_is_kept_and_all_replicas_are_equal_in_the_end(block: int) -> None:
    states: Counter[str] = Counter()
    count = 0
    for seed in range(block, SEEDS, BLOCKS):
        found = explore_replication(seed)
        assert not found.findings, f"seed {seed}: {found.findings}"
        states.update(found.states)
        count += 1
    print(count, dict(states))
    assert states["acknowledged records"] > 500 * count
    assert states["leader epochs of partitions"] > 3 * count
    assert count < MANY or not [name for name in RARE if not states[name]], states


def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_replication(7).digest == explore_replication(7).digest
