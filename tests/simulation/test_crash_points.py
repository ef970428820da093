"""A death in a step of the protocol of transactions; ``make sim SEEDS=4620`` has each one of 231 twenty times, ``make test`` seven."""

from __future__ import annotations

import os

import pytest
from tests.simulation.crash_seeds import POINTS, try_seed
from tests.simulation.hunt import silence

PER_API, PER_MOMENT = 33, 11
ALWAYS = [len(POINTS) * (api % 3) + PER_API * api + PER_MOMENT * (api % 3) + 4 * api % PER_MOMENT for api in range(7)]
SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "0"))) or ALWAYS


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_whoever_dies_in_whatever_step_each_transaction_is_all_or_nothing_and_ends() -> None:
    findings, died = [], 0
    for seed in SEEDS:
        _, found, states = try_seed(seed)
        findings += [f"seed {seed}: {finding}" for finding in found]
        died += states["died"]
    assert findings == []
    assert died == len(SEEDS), "every trap has sprung"


def test_the_share_that_is_always_run_has_some_of_everything() -> None:
    for part in ("api", "moment", "victim", "fault"):
        assert {getattr(POINTS[seed % len(POINTS)], part) for seed in ALWAYS} == {getattr(point, part) for point in POINTS}
