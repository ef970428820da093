"""One plan from its first event to its judgement: chaos, then everything heals, and the quorum has to recover in bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.sim.machines.plan import CHAOS_MS, Plan
from ottla.sim.machines.world import APPEND, FAULT, SECOND, QuorumWorld

RECOVERY_MS = 1_700
"""So long after the last fault there is a leader that all follow; what is appended then is committed everywhere 400 ms later."""

RARE: Mapping[str, int] = {
    "leaders found dead": 100,
    "pre-votes refused": 100,
    "hand-overs": 500,
    "truncations": 500,
    "entries of earlier epochs committed": 500,
    "two leaders of different epochs": 500,
    "snapshots installed": 2_000,
    "epochs without a leader (split votes)": 2_000,
    "entries lost by a power cut": 2_000,
    "leaders resigned for want of a majority": 2_000,
    "truncations over several epochs": 10_000,
    "entries of a majority cut (figure 8)": 100_000,
}
"""What has to be met, and in how many runs at the latest: a simulation that never reaches a state says nothing about it."""


def never_reached(met: Counter[str]) -> list[str]:
    """Returns what that many runs should have reached, and have not."""
    return [name for name, runs in RARE.items() if met["runs"] >= runs and not met[name]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a plan. Equal plans have equal outcomes."""

    findings: tuple[str, ...]
    digest: int
    events: int
    committed: int
    met: Counter[str]


def explore_quorum(plan: Plan) -> Outcome:
    """Carries out the plan and judges the result."""
    world = QuorumWorld(plan)
    for member in world.members.values():
        member.boot(0)
        world.arm(member)
    for fault in plan.faults:
        world.push(fault.at_ms, FAULT, 0, fault)
    world.push(1, APPEND, 0, 1)
    world.push(200, SECOND, 0)
    try:
        world.run(CHAOS_MS)
        heal(world)
        world.run(CHAOS_MS + RECOVERY_MS)
        if not world.checker.findings:
            judge(world)
    except AssertionError as error:  # an invariant inside the machine
        world.checker.found(f"AssertionError: {error}")
    met = world.checker.met
    met["runs"] = 1
    met["epochs without a leader (split votes)"] += any(
        member.quorum.epoch > len(world.checker.leaders) for member in world.members.values()
    )
    return Outcome(tuple(world.checker.findings), world.digest, world.events, len(world.checker.committed), met)


def heal(world: QuorumWorld) -> None:
    """Restarts all processes, and mends all links and disks."""
    world.cuts.clear()
    world.refused.clear()
    world.loss, world.slow_ms = 0.0, 0
    world.heap = [event for event in world.heap if event[2] != FAULT + 1]  # what was to be mended later
    world.heap.sort()
    for member in world.members.values():
        member.disk_ms = 3
        if member.is_stopping and member.is_up:
            member.is_up = False
        if not member.is_up:
            member.boot(world.now_ms)
            world.arm(member)


def judge(world: QuorumWorld) -> None:
    """Finds a failure to recover: one leader must exist that all follow, and its appends must be committed everywhere."""
    checker = world.checker
    leaders = [member for member in world.members.values() if member.quorum.is_established]
    if len(leaders) != 1:
        checker.found(f"{len(leaders)} leaders, {RECOVERY_MS} ms after the last fault")
        return
    [leader] = leaders
    before = len(checker.committed)
    world.append(3)
    world.run(world.now_ms + 400)
    if len(checker.committed) < before + 3:
        checker.found("what was appended after recovery is not committed 400 ms later")
    for node, member in world.members.items():
        if member.quorum.epoch != leader.quorum.epoch or member.quorum.leader_id != leader.settings.node_id:
            checker.found(f"node {node} does not follow the leader after recovery")
        elif member.applied_offset != len(checker.committed) or member.applied_digest != checker.digests[-1]:
            checker.found(f"node {node} has applied {member.applied_offset} of {len(checker.committed)} committed entries")
