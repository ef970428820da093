"""Transactions over nodes that are killed, cut off and paused: all or nothing of each, and no end that does not come.

``OTTLA_SEEDS`` are explored; the share of ``make test`` is about 13 s.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.seeds import never_reached
from tests.simulation.transactional_nodes import explore_transactions
from tests.simulation.transactional_seeds import RARE, try_seed

SEEDS = int(os.environ.get("OTTLA_SEEDS", "3"))
MANY = 60
"""So many seeds reach every state that matters."""


@pytest.mark.timeout(3600)
def test_of_each_transaction_readers_get_all_or_nothing() -> None:
    states: Counter[str] = Counter()
    for seed in range(SEEDS):
        _, findings, met = try_seed(seed)
        assert not findings, f"seed {seed}: {findings}"
        states.update(met)
    print(dict(states))
    assert states["transactions committed"] >= 20 * states["runs"]
    assert states["transactions aborted"] >= 5 * states["runs"]
    assert states["runs"] < MANY or not never_reached(states, RARE), states


def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_transactions(2).digest == explore_transactions(2).digest
