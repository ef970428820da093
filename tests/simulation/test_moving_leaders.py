"""Leadership comes and goes under load: nothing acknowledged is lost, nothing is served or written in an epoch that is over."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.moving_leaders import explore

SEEDS = int(os.environ.get("OTTLA_SEEDS", "4"))
BLOCKS = 4


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_a_broker_promised_while_it_led_is_kept(block: int) -> None:
    states: Counter[str] = Counter()
    acknowledged = 0
    for seed in range(block, SEEDS, BLOCKS):
        found = explore(seed)
        assert not found.findings, f"seed {seed}: {found.findings[:5]}"
        states.update(found.states)
        acknowledged += sum(map(len, found.produced.values())) + sum(found.committed.values())
    print(acknowledged, dict(states))
    assert acknowledged > 1000
    assert states["asked while it is led elsewhere"] > 10
    assert states["coordinators that load"] > 0


def test_the_same_seed_gives_the_same_run() -> None:
    assert explore(3).digest == explore(3).digest
