"""One broker crashed before any of its disk operations, recovered, and held to what was promised.

The share of ``make test`` is about 15 s; ``make sim`` explores OTTLA_SEEDS more seeds.
"""

from __future__ import annotations

import errno
import os

import pytest
from tests.simulation.hunt import plans, silence

from ottla.sim.explore import Outcome, Plan, explore
from ottla.sim.faults import Fault

SEEDS = int(os.environ.get("OTTLA_SEEDS", "200"))
CHUNK = 100


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def check(plan: Plan) -> Outcome:
    outcome = explore(plan)
    assert not outcome.findings, f"{plan}\n" + "\n".join(outcome.findings[:5]) + f"\nlast events:\n{outcome.events}"
    return outcome


def test_same_seed_same_trace() -> None:
    plan = Plan(7, crash_step=90, power_cut=True, again_step=20)
    first, second = check(plan), check(plan)
    assert first == second
    assert first.crashes == 2


def test_another_seed_is_another_run() -> None:
    assert len({explore(Plan(seed)).digest for seed in range(10)}) == 10


def test_without_a_crash_everything_is_acknowledged() -> None:
    outcome = check(Plan(1))
    assert (outcome.crashes, outcome.acknowledged) == (0, 120)


@pytest.mark.parametrize(
    ("power_cut", "is_flushed"), [(False, False), (True, True), (True, False)], ids=["kill", "power-cut-flushed", "power-cut-page-cache"]
)
@pytest.mark.slow
def test_a_crash_before_any_disk_operation_breaks_no_promise(power_cut: bool, is_flushed: bool) -> None:
    steps = explore(Plan(1, is_flushed=is_flushed)).steps
    crashes = sum(check(Plan(1, step, power_cut, is_flushed)).crashes for step in range(1, steps + 1))
    assert crashes >= steps - 5, "nearly every plan really crashed"


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
@pytest.mark.slow
def test_a_crash_at_any_operation_of_the_recovery_breaks_no_promise(power_cut: bool) -> None:
    crashes = [check(Plan(3, 100, power_cut, True, again)).crashes for again in range(1, 60)]
    assert sum(crashes) > 59 + 20, "many of the recoveries were crashed too"


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.slow
def test_many_seeds_break_no_promise(first: int) -> None:
    outcomes = [check(plan) for plan in plans(first, min(CHUNK, SEEDS - first))]
    assert sum(outcome.crashes for outcome in outcomes) > len(outcomes) * 0.8


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize(("operation", "suffix"), [("append", ".log"), ("sync", ".log"), ("create", ".log")])
def test_a_disk_that_fails_acknowledges_nothing_that_is_lost(operation: str, suffix: str, code: int) -> None:
    for seed in range(5):
        plan = Plan(seed, is_flushed=True, fault=Fault(operation, suffix, code), fault_step=100)
        check(plan)
