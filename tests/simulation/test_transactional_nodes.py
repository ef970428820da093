"""Transactions over nodes that are killed, cut off and paused: all or nothing of each, and no end that does not come.

``OTTLA_SEEDS`` are explored; the share of ``make test`` is about 13 s.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.hard_transactions import explore_hard_transactions
from tests.simulation.seeds import never_reached
from tests.simulation.transactional_nodes import explore_transactions
from tests.simulation.transactional_seeds import RARE, RARE_IN_HARD_ONES, try_seed

SEEDS = int(os.environ.get("OTTLA_SEEDS", "0"))
WATCHED = ("markers sent", "stable offsets looked at", "transactional batches", "decisions committed")
MANY = 60
"""So many seeds reach every state that matters."""
KINDS = {"killed": (explore_transactions, RARE, 1), "hard": (explore_hard_transactions, (*RARE, *RARE_IN_HARD_ONES), 1)}
"""How nodes are explored, what many seeds must have met, and the share of ``make test``."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_of_each_transaction_readers_get_all_or_nothing(kind: str) -> None:
    explore, rare, share = KINDS[kind]
    states: Counter[str] = Counter()
    for seed in range(SEEDS or share):
        _, findings, met = try_seed(seed, explore)
        assert not findings, f"seed {seed}: {findings}"
        states.update(met)
    print(dict(states))
    assert states["transactions committed"] >= 20 * states["runs"]
    assert states["transactions aborted"] >= 5 * states["runs"]
    assert min(states[what] for what in WATCHED) >= 20 * states["runs"], "the watch has seen what it watches"
    assert states["runs"] < MANY or not never_reached(states, rare), states


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_transactions(2).digest == explore_transactions(2).digest
