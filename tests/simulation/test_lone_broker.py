"""One broker crashed before any of its disk operations, recovered, and held to what was promised."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from tests.simulation.explorations import EXPLORATIONS, QUORUM, STEPS
from tests.simulation.explorer import Run, explore
from tests.simulation.lone_broker import HOST, STEPS_MAX, at_step, lone_node
from tests.simulation.trying import try_seed

from ottla.sim.schedule.fault import STEP, Kind, ScheduledFault, Trigger, from_text, to_text

MODES: Final = [(Kind.KILL, False), (Kind.POWER, True), (Kind.POWER, False)]
STRIDE: Final = 1 if "OTTLA_SEEDS" in os.environ else 2
"""So far apart are the disk operations that are tried; ``make sim`` tries all."""
RECOVERY: Final = 100
"""The operation before which it dies whose recovery is looked at."""
IDS: Final = ["kill", "power-cut-flushed", "power-cut-page-cache"]


def check(seed: int, *faults: ScheduledFault, is_flushed: bool) -> Run:
    """What the seed leads to under these faults, which breaks no promise."""
    exploration = replace(STEPS, nodes_of=partial(lone_node, is_flushed=is_flushed, segment_bytes=1024))
    run = explore(exploration, seed, faults)
    assert not run.findings, f"{to_text(faults, f'seed {seed}')}{run.findings[:5]}"
    return run


def test_another_seed_is_another_run_and_the_same_is_the_same() -> None:
    assert len({explore(STEPS, seed).digest for seed in range(10)}) == 10
    assert explore(STEPS, 7).digest == explore(STEPS, 7).digest


def test_without_a_fault_everything_is_acknowledged_within_the_steps_that_are_tried() -> None:
    run = check(1, is_flushed=False)
    assert run.states["acknowledged records"] == 120
    assert run.states["disk operations"] < STEPS_MAX + 20


@pytest.mark.parametrize(("death", "is_flushed"), MODES, ids=IDS)
@pytest.mark.slow
def test_a_crash_before_any_disk_operation_breaks_no_promise(death: Kind, is_flushed: bool) -> None:
    steps = check(1, is_flushed=is_flushed).states["disk operations"]
    tried = range(1 + MODES.index((death, is_flushed)) % STRIDE, steps + 1, STRIDE)
    crashes = sum(check(1, at_step(step, death), is_flushed=is_flushed).states["triggered"] for step in tried)
    assert crashes >= len(tried) - 5, "nearly every run really crashed"


@pytest.mark.parametrize("death", [Kind.KILL, Kind.POWER])
@pytest.mark.slow
def test_a_crash_at_any_operation_of_the_recovery_breaks_no_promise(death: Kind) -> None:
    both = [[at_step(RECOVERY, death), at_step(RECOVERY + again, death)] for again in range(1, 60)]
    runs = [check(3, *faults, is_flushed=True) for faults in both]
    assert sum(run.states["triggered"] for run in runs) > 59 + 20, "many of the recoveries were crashed too"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("of", ["append:.log", "sync:.log", "create:.log"])
def test_a_disk_that_fails_once_acknowledges_nothing_that_is_lost(of: str, code: int) -> None:
    fails = ScheduledFault(0, Kind.DISK_FAILS, HOST, for_ms=2000, by=code, of=of, when=Trigger(100, STEP, host=HOST))
    for seed in range(5):
        assert check(seed, fails, is_flushed=True).states["triggered"]


def test_a_schedule_in_place_of_the_seeds_own_is_carried_out() -> None:
    run = explore(EXPLORATIONS["alone", QUORUM], 3, from_text("100 kill broker for 50\n300 pause broker for 100\n"))
    assert run.findings == []
    assert {"kill": 1, "pause": 1}.items() <= run.states.items()


def test_a_run_that_fails_is_a_finding_with_its_smallest_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what a power cut takes back counts as lost, though no promise covers it."""
    monkeypatch.setattr("tests.simulation.lone_broker.LoneNode.keeps_all", True)
    monkeypatch.setattr("tests.simulation.trying.RUNS_MAX", 100)
    found = next(found for seed in range(40) if (found := try_seed("steps", QUORUM, seed)[1]))
    faults = from_text(found[0].partition("\n")[2])
    assert len(faults) <= 2
    assert faults[-1].kind is Kind.POWER
