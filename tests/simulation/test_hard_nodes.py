"""Shipped nodes whose disks are slow or full, whose values change, to which strangers speak: what acks=all has acknowledged is kept.

``OTTLA_SEEDS`` are explored in each home; the share of ``make test`` is about 10 s.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.hard_nodes import explore_hard
from tests.simulation.hard_seeds import RARE, RARE_IN_A_QUORUM, try_seed
from tests.simulation.seeds import never_reached

SEEDS = int(os.environ.get("OTTLA_SEEDS", "2"))
MANY = 60
"""So many seeds reach every state that matters."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("home", ["quorum", "zookeeper"])
@pytest.mark.slow
def test_slow_and_full_disks_changed_values_and_strangers_lose_double_and_reorder_nothing(home: str) -> None:
    states: Counter[str] = Counter()
    for seed in range(SEEDS):
        _, findings, met = try_seed(seed, home)
        assert not findings, f"seed {seed}: {findings}"
        states.update(met)
    print(dict(states))
    assert states["with content"] >= 0.97 * states["runs"]
    assert states["runs"] < MANY or not never_reached(states, RARE if home == "zookeeper" else (*RARE, *RARE_IN_A_QUORUM)), states


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_hard(2).digest == explore_hard(2).digest
