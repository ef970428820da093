"""The cluster simulator: nodes, what clients do, what befalls them, and what must hold, each a value of an ``Exploration``.

A run has a seed and a schedule of faults (``ottla.sim.schedule``): the one that the seed draws, or one that is given, as a text that was
kept. The schedule that a run has carried out is in its outcome, and leads to the same run again. When clients have stopped and everything
is healed, the checkers look at what is there.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog
from tests.simulation.quorum_nodes import HEAL_SECONDS, KILLED, QuorumNode, with_time

from ottla.broker.tasks.slices import SLICE_US
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run
from ottla.sim.schedule.fault import ScheduledFault
from ottla.sim.schedule.injector import Act, Injector, Node
from ottla.sim.world import Machine

WORK_MS: Final = 30_000
"""So long clients work at least."""
WORKED_US_MAX: Final = 2 * SLICE_US
Events = Sequence[Mapping[str, Any]]


class Work(Protocol):
    """What clients do."""

    async def prepare(self) -> None:
        """Before anything fails; it has the time in which nodes heal."""
        ...

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Each ends when the run is over."""
        ...


@dataclass
class Run:
    """What one seed met and found, and the faults that it had."""

    findings: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    schedule: list[ScheduledFault] = field(default_factory=list)
    digest: str = ""
    events: Events = ()


@dataclass
class Trial:
    """One run as it goes on, for those that take part in it."""

    seed: int
    simulation: Simulation
    injector: Injector
    result: Run
    nodes: list[QuorumNode] = field(default_factory=list)
    processes: dict[str, Node] = field(default_factory=dict)  # of clients, that may be killed
    others: dict[str, Machine] = field(default_factory=dict)  # hosts of other clients that faults may befall
    work: Work | None = None
    background: list[asyncio.Task[None]] = field(default_factory=list)  # ended when clients have stopped
    events: Events = ()

    @property
    def states(self) -> Counter[str]:
        return self.result.states

    @property
    def is_over(self) -> asyncio.Event:
        return self.injector.over

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def node(self, host: str) -> QuorumNode:
        return next(node for node in self.nodes if node.machine.name == host)


def active_controller(trial: Trial) -> str:
    """The host's name; the first one's while there is none."""
    active = [node for node in trial.nodes if node.broker is not None and node.broker.controller.is_active]
    return (active or trial.nodes)[0].machine.name


@contextmanager
def _as_it_is(trial: Trial) -> Iterator[None]:
    yield


def work_of_machine(rng: random.Random) -> Callable[[], int]:
    """Returns how long a machine has worked at each look, in microseconds: mostly no time that shows, at times longer than a slice."""
    share = rng.choice([0.02, 0.1, 0.4])
    return lambda: rng.randrange(WORKED_US_MAX) if rng.random() < share else 0


def _nothing(fault: ScheduledFault) -> None:
    return None


Checker = Callable[[Trial], Awaitable[list[str]]]
"""Looks at a run when everything is healed, and returns what is wrong."""
EventChecker = Callable[[Events], list[str]]


@dataclass(frozen=True)
class Exploration:
    """What is explored, in all its seeds."""

    nodes_of: Callable[[Simulation], Sequence[QuorumNode]]
    work_of: Callable[[Trial], Work]
    draw: Callable[[Simulation], list[ScheduledFault]]
    checkers: Sequence[Checker]
    event_checkers: Sequence[EventChecker] = ()
    features: Callable[[int], Mapping[str, int]] = lambda seed: {}
    acts: Callable[[Trial], Act] = lambda trial: _nothing
    roles: Mapping[str, Callable[[Trial], str]] = field(default_factory=lambda: {"controller": active_controller})
    may_cut_power: Callable[[Trial], Callable[[], bool]] = lambda trial: lambda: True
    lacks: Callable[[Trial], Mapping[str, int]] = lambda trial: {}
    """That which the run needs to say anything, and of which it has too little; faults go on for a while until that is nothing."""
    around: Callable[[Trial], AbstractContextManager[Any]] = _as_it_is
    is_busy: bool = False
    """Nodes take time for what they do, and pause where they have long work."""
    work_ms: int = WORK_MS
    heal_seconds: float = HEAL_SECONDS
    after_ms: int = 0  # so long clients go on after the last fault
    rare: Sequence[str] = ()  # what many seeds together must have met: otherwise they say nothing about it
    many: int = 60  # so many seeds meet all of that


def explore(exploration: Exploration, seed: int, schedule: Sequence[ScheduledFault] | None = None) -> Run:
    """One run. ``findings`` is empty when every promise was kept."""
    structlog.reset_defaults()  # what is logged is judged
    result, simulation = Run(), Simulation(seed)
    faults = exploration.draw(simulation) if schedule is None else schedule

    async def main() -> None:
        trial = Trial(seed, simulation, Injector(simulation.fabric, faults), result, events=events)
        with exploration.around(trial):
            try:
                await _play(exploration, trial, is_drawn=schedule is None)
            finally:
                result.schedule = trial.injector.begun

    with structlog.testing.capture_logs(processors=[with_time]) as events:
        try:
            run(main())
        except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of a node may show in any way
            result.findings.append(repr(error))
    for check in exploration.event_checkers:
        result.findings += check(events)
    for event in events:
        result.states[event["event"]] += 1
        if "reason" in event:
            result.states[f"{event['event']}: {event['reason']}"] += 1
    result.states["active controller killed"] = sum(event["event"] == KILLED and event["was_active"] for event in events)
    result.states["runs"] = 1
    result.events, result.digest = events, simulation.trace.digest
    return result


async def _play(exploration: Exploration, trial: Trial, *, is_drawn: bool) -> None:
    loop, injector = asyncio.get_running_loop(), trial.injector
    trial.nodes = list(exploration.nodes_of(trial.simulation))
    for node in trial.nodes:
        await node.format(exploration.features(trial.seed))
        node.begin()
        if exploration.is_busy:
            node.machine.clock.worked_us = work_of_machine(trial.simulation.random(f"work of {node.machine.name}"))
    roles = exploration.roles
    injector.role_of = lambda name: roles[name](trial) if name in roles else name
    work = trial.work = exploration.work_of(trial)
    injector.act, injector.may_cut_power = exploration.acts(trial), exploration.may_cut_power(trial)
    async with asyncio.timeout(exploration.heal_seconds):
        await work.prepare()
    nodes = {node.machine.name: node for node in trial.nodes} | trial.processes

    def goes_on(fault: ScheduledFault) -> bool:
        return not is_drawn or fault.at_ms < exploration.work_ms or bool(exploration.lacks(trial))

    injecting = loop.create_task(
        injector.run(nodes, trial.others, goes_on=goes_on, ends_ms=exploration.work_ms, after_ms=exploration.after_ms)
    )
    working = [loop.create_task(task) for task in work.tasks()]
    over, idle = loop.create_task(injector.over.wait()), asyncio.gather(*working)
    ends: list[asyncio.Future[Any]] = [injecting, over, idle]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if not over.done():  # clients have ended by themselves: nothing triggers anything any more
        injector.disarm()
        await asyncio.wait([injecting, over], return_when=asyncio.FIRST_COMPLETED)
    async with asyncio.timeout(exploration.heal_seconds):
        await asyncio.gather(injecting, idle, *(node.starting for node in trial.nodes if node.starting is not None))
    for task in trial.background:
        task.cancel()
    trial.states.update(injector.counts + trial.simulation.fabric.counts)
    trial.states["with content"] = int(not exploration.lacks(trial))
    for check in exploration.checkers:
        trial.result.findings += await check(trial)
        if trial.result.findings and check is exploration.checkers[0]:
            return
