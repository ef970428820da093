"""Everything at once, over seeds; the share of ``make test`` is about 20 s, ``make sim`` explores OTTLA_SEEDS seeds."""

from __future__ import annotations

import os
from collections import Counter

import pytest
import structlog
from tests.simulation.crowd import IMPORTANT, try_seed
from tests.simulation.seeds import never_reached

from ottla.sim.crowd.run import explore_crowd

SEEDS = int(os.environ.get("OTTLA_SEEDS", "4"))
ENOUGH = 250
"""So many seeds reach every meeting that matters."""
CHUNK = min(SEEDS, ENOUGH)


@pytest.fixture(autouse=True)
def _heard() -> None:
    structlog.reset_defaults()  # what is logged is judged


@pytest.mark.slow
def test_same_seed_same_trace() -> None:
    assert explore_crowd(3) == explore_crowd(3)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.slow
def test_parts_beside_each_other_keep_their_promises(first: int) -> None:
    met = Counter[str]()
    for seed in range(first, min(first + CHUNK, SEEDS)):
        _, findings, meetings = try_seed(seed)
        assert not findings, f"seed {seed}\n" + "\n".join(findings[:5])
        met += meetings
    if met["runs"] >= ENOUGH:
        assert never_reached(met, IMPORTANT) == []
