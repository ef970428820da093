"""One run: a broker, its clients and its troubles, all drawn from a seed.

A run has one or two log directories and small rates for the cleaner, the scrubber and the mover, so that each takes long enough to
be met. Clients write, read from the start, join and leave a group, commit, create topics and delete them, delete records and
move replicas, while retention, compaction and scrubbing run every moment and troubles come and go.

When that is over the troubles end, and the broker has a while to find itself again. Then what was promised must hold, and nothing
that the broker did not expect may have been logged.

With one replica a power cut takes back what was not synced, so runs that have one have flush.messages=1.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

import structlog

from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.crowd.clients import jobs, keep_at, make_topics
from ottla.sim.crowd.knowledge import Knowledge
from ottla.sim.crowd.meetings import Meetings
from ottla.sim.crowd.troubles import make_trouble
from ottla.sim.crowd.verdict import heal, judge, judge_context, judge_events, watch_starts
from ottla.sim.loop import run

SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    findings: list[str]
    meetings: Counter[str]
    acknowledged: int
    digest: str
    events: str


def explore_crowd(seed: int) -> Outcome:
    """One run. ``findings`` is empty when every promise held."""
    simulation = Simulation(seed)
    rng = simulation.random("properties")
    is_flushed = rng.random() < 0.4
    broker = SimBroker(simulation, _properties(rng, is_flushed=is_flushed))
    known = Knowledge(simulation, broker, is_flushed, Meetings(broker.machine.disk))

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: judge_context(known, context))
        await known.start_broker()
        await make_topics(known)
        work: list[Awaitable[None]] = [keep_at(known, name, job) for name, job in jobs(known)]
        await asyncio.gather(*work, make_trouble(known), watch_starts(known), _end(known))
        await heal(known)
        await judge(known)
        judge_events(known, events)  # before everything that is still on is cancelled

    with structlog.testing.capture_logs() as events:
        run(main())
    return Outcome(known.findings, known.meetings.counts, len(known.acknowledged), simulation.trace.digest, simulation.trace.tail())


async def _end(known: Knowledge) -> None:
    await asyncio.sleep(SECONDS)
    known.is_over = True


def _properties(rng: random.Random, *, is_flushed: bool) -> dict[str, str]:
    return {
        "log.dirs": rng.choice(["/data", "/data,/spare", "/data,/spare"]),
        "log.segment.bytes": "1024",
        "log.index.interval.bytes": "200",
        "log.retention.check.interval.ms": "300",
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.io.max.bytes.per.second": str(rng.choice([1500, 20_000, 10**9])),
        "log.segment.delete.delay.ms": str(rng.choice([0, 500, 3000])),
        "ottla.log.scrub.interval.ms": "1",
        "ottla.log.scrub.bytes.per.second": str(rng.choice([2000, 50_000])),
        "replica.alter.log.dirs.io.max.bytes.per.second": str(rng.choice([1500, 50_000])),
    } | ({"log.flush.interval.messages": "1"} if is_flushed else {})
