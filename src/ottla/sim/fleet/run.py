"""One run: the nodes and their clients work, a schedule of faults is carried out, and when all has ended what was promised must hold.

With one replica a power cut takes back what was not synced; half of the runs have flush.messages=1, which does not let it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from ottla.sim.cluster import Simulation
from ottla.sim.fleet.parts import Unit
from ottla.sim.fleet.verdict import judge
from ottla.sim.loop import run
from ottla.sim.schedule.drawing import draw_schedule
from ottla.sim.schedule.injector import Injector
from ottla.sim.schedule.timed import TimedFault

NODES: Final = 3
FAULTS_MS: Final = 4000
"""Faults start within this time; clients start before it and end after it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    findings: list[str]
    schedule: list[TimedFault]
    states: Counter[str]  # what was met, by name
    acknowledged: int
    digest: str
    events: str


def explore_fleet(seed: int, schedule: Sequence[TimedFault] | None = None) -> Outcome:
    """One run, with the schedule that the seed draws, or with another one. ``findings`` is empty when every promise held."""
    simulation = Simulation(seed)
    rng = simulation.random("properties")
    is_flushed = rng.random() < 0.5
    findings: list[str] = []
    states: Counter[str] = Counter()
    faults: list[TimedFault] = []
    acknowledged = 0

    async def main() -> None:
        nonlocal acknowledged
        units = [Unit(simulation, number, _properties(is_flushed=is_flushed)) for number in range(1, NODES + 1)]
        nodes = {unit.machine.name: unit for unit in units}
        clients = {name: client.machine for unit in units for name, client in unit.clients.items()}
        drawn = draw_schedule(
            simulation.random("schedule"),
            nodes=list(nodes),
            others=list(clients),
            links=[link for unit in units for link in unit.links],
            ms=FAULTS_MS,
        )
        faults.extend(drawn if schedule is None else schedule)
        await asyncio.gather(*(unit.set_up() for unit in units))
        injector, is_over = Injector(simulation.fabric, nodes, clients), asyncio.Event()
        work = asyncio.gather(*(unit.work(is_over) for unit in units))
        await injector.run(faults)
        for name in nodes:
            await injector.start(name)
        is_over.set()
        await work
        for unit in units:
            findings.extend(await judge(unit, is_flushed=is_flushed))
            await unit.stop_reading()
        acknowledged = sum(len(unit.history.acknowledged) for unit in units)
        states.update(injector.counts + simulation.fabric.counts)

    with structlog.testing.capture_logs() as events:
        run(main())
    states.update(f"event {event['event']}" for event in events)
    return Outcome(findings, faults, states, acknowledged, simulation.trace.digest, simulation.trace.tail())


def _properties(*, is_flushed: bool) -> dict[str, str]:
    properties = {"log.segment.bytes": "4096", "log.index.interval.bytes": "200"}
    return properties | ({"log.flush.interval.messages": "1"} if is_flushed else {})
