"""The quorum's machines alone, over seeds and over every state of a small scope.

The share of ``make test`` is about 13 s; ``make sim`` explores OTTLA_SEEDS x 100 seeds, and a larger scope.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from tests.simulation.trying import MACHINES, try_seed

from ottla.sim.machines.exhaustive import Scope, search
from ottla.sim.machines.plan import LEADER, Plan, plan_of
from ottla.sim.machines.run import Outcome, explore_quorum, never_reached
from ottla.sim.machines.world import FAULT, QuorumWorld
from ottla.sim.schedule.fault import Kind, ScheduledFault, from_text, to_text

SEEDS = 100 * int(os.environ.get("OTTLA_SEEDS", "10"))
CHUNK = 100_000
"""So many seeds reach every state that matters."""
SCOPES = [Scope(appends=1, crashes=0, timeouts=2), Scope(epochs=1, appends=0, crashes=1, timeouts=2)]
LARGER = [Scope(appends=1, crashes=0), Scope(appends=0, crashes=1), Scope(epochs=1, appends=2, crashes=1)]


def check(seed: int) -> Outcome:
    outcome = explore_quorum(plan_of(seed))
    assert not outcome.findings, f"seed {seed}: " + "\n".join(try_seed(*MACHINES, seed)[1][:5])
    return outcome


def test_a_plan_is_a_text_to_be_read_and_written_and_leads_to_the_same_run() -> None:
    for seed in range(50):
        plan = plan_of(seed)
        again = replace(plan, faults=tuple(from_text(to_text(plan.faults))))
        assert again == plan
        assert explore_quorum(again) == explore_quorum(plan)


def test_same_seed_same_trace() -> None:
    for seed in range(20):
        assert check(seed) == check(seed)


def test_another_seed_is_another_run() -> None:
    assert len({explore_quorum(plan_of(seed)).digest for seed in range(50)}) == 50


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_quorum_keeps_its_promises_and_recovers(first: int) -> None:
    met = Counter[str]()
    for seed in range(first, min(first + CHUNK, SEEDS)):
        met += check(seed).met
    assert never_reached(met) == [], met


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scope", [*SCOPES, *LARGER] if "OTTLA_SEEDS" in os.environ else SCOPES, ids=str)
def test_every_state_of_a_small_scope_keeps_the_promises(scope: Scope) -> None:
    states, steps = search(scope)
    print(f"{states} states, {steps} steps")
    assert 10_000 < states < scope.states_max


@pytest.mark.parametrize("voters", [3, 5])
def test_a_killed_leader_is_replaced_long_before_fetch_timeout(voters: int) -> None:
    for seed in range(100):
        world = QuorumWorld(Plan(seed, voters, 0, (), duplicates=False, append_ms=400))
        for member in world.members.values():
            member.boot(0)
            world.arm(member)
        world.push(1500, FAULT, 0, ScheduledFault(1500, Kind.KILL, LEADER, for_ms=5000))
        world.run(1499)
        before = max(world.checker.established)
        world.run(1600)
        assert max(world.checker.established) > before, f"seed {seed}: no leader may act 100 ms after the last one was killed"
        assert not world.checker.findings
