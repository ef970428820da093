"""A broker, its clients and its troubles, all drawn from a seed.

A run has one or two log directories and small rates for the cleaner, the scrubber and the mover, so that each takes long enough to
be met. Clients write, read from the start, join and leave a group, commit, create topics and delete them, delete records and
move replicas, while retention, compaction and scrubbing run every moment and troubles come and go: a disk that is full for a while,
descriptors that run out, a process that dies or stands still, perhaps some disk operations after an act of some kind, a power cut, a
broker that is cut off, or one client on one way, bits that rot.

When that is over the troubles end, and the broker has a while to find itself again. Then what was promised must hold, and nothing
that the broker did not expect may have been logged.

With one replica a power cut takes back what was not synced, so power is cut only in runs that have flush.messages=1.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.simulation.crowd.clients import jobs, keep_at, make_topics
from tests.simulation.crowd.knowledge import ROTTEN, TOPICS, Knowledge
from tests.simulation.crowd.meetings import Meetings
from tests.simulation.crowd.verdict import heal, judge, judge_context, judge_events, watch_starts
from tests.simulation.draws import Faults, one_by_one
from tests.simulation.explorer import Exploration, Trial
from tests.simulation.lone_broker import HOST, LoneNode
from tests.simulation.quorum_nodes import QuorumNode, started

from ottla.broker.upkeep.scrubber import Scrubber
from ottla.sim.cluster import Simulation
from ottla.sim.schedule.fault import AFTER, STEP, Kind, ScheduledFault, Trigger
from ottla.sim.schedule.injector import Act

WORK_MS: Final = 5000
DOWN_MS: Final = 300
LASTS_MS_MAX: Final = 2000
SCRUB_PAUSE_MS: Final = 100
ACTS: Final = ("install", "arrival of a move", "deletion of a topic", "retention", "roll")
NAMES: Final = {
    Kind.KILL: "kill",
    Kind.POWER: "power cut",
    Kind.DISK_FULL: "ENOSPC",
    Kind.NO_FILES: "EMFILE",
    Kind.PAUSE: "pause",
    Kind.DARK: "dark",
}
"""What a meeting calls a fault."""
CLIENTS: Final = (
    *(f"writer-{topic}" for topic in TOPICS),
    *("reader", "churn", "member-1", "member-2", "deleter", "clock", "committer", "mover"),
)


class CrowdNode(LoneNode):
    """It scrubs all the time."""

    def __init__(self, simulation: Simulation) -> None:
        rng = simulation.random("properties")
        super().__init__(simulation, is_flushed=rng.random() < 0.4, segment_bytes=1024)
        self._properties = dict(self._properties) | {
            "log.dirs": rng.choice(["/data", "/data,/spare", "/data,/spare"]),
            "log.retention.check.interval.ms": "300",
            "log.cleaner.backoff.ms": "200",
            "log.cleaner.io.max.bytes.per.second": str(rng.choice([1500, 20_000, 10**9])),
            "log.segment.delete.delay.ms": str(rng.choice([0, 500, 3000])),
            "ottla.log.scrub.interval.ms": "1",
            "ottla.log.scrub.bytes.per.second": str(rng.choice([2000, 50_000])),
            "replica.alter.log.dirs.io.max.bytes.per.second": str(rng.choice([1500, 50_000])),
        }

    async def start(self, **options: Any) -> None:
        await super().start(**options)
        assert self.broker is not None, "it was started"
        rounds = self.broker.part(Scrubber)._rounds
        rounds._pause_ms = lambda: SCRUB_PAUSE_MS
        rounds.start(SCRUB_PAUSE_MS)


def crowd_node(simulation: Simulation) -> list[QuorumNode]:
    return [CrowdNode(simulation)]


class Crowd:
    """All clients, and what they know."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        [node] = trial.nodes
        assert isinstance(node, CrowdNode)
        self.known = Knowledge(
            trial.simulation, node, Meetings(node.machine.disk, trial.injector.note), trial.is_over, trial.result.findings
        )

    async def prepare(self) -> None:
        """The topics are there, and what is raised where no task awaits it is heard of."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: judge_context(self.known, context))
        await started(self._trial.nodes)
        await make_topics(self.known)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [*(keep_at(self.known, name, job) for name, job in jobs(self.known)), watch_starts(self.known)]


def _crowd(trial: Trial) -> Crowd:
    assert isinstance(trial.work, Crowd)
    return trial.work


def met(trial: Trial) -> Act:
    """What was being done when a fault began is noted; and rot is carried out."""

    def act(fault: ScheduledFault) -> Coroutine[Any, Any, None] | None:
        meetings = _crowd(trial).known.meetings
        name = NAMES.get(fault.kind)
        if fault.kind is Kind.CUT:
            name = "answers cut" if fault.host == HOST else "requests cut"
        if name is not None:
            meetings.note(name)
            if fault.when is not None:
                meetings.counts[f"{name} after {fault.when.suffix.removeprefix(AFTER).replace('-', ' ')}"] += 1
        if fault.kind in (Kind.KILL, Kind.POWER):
            meetings.note_end()
        return _rot(_crowd(trial).known) if fault.kind is Kind.ROT else None

    return act


async def _rot(known: Knowledge) -> None:
    """A bit of a closed segment that the scrubber alone will meet."""
    broker = known.running
    partition = broker.partitions.find(ROTTEN, 0) if broker is not None else None
    if partition is None or len(partition.log.segments) < 3 or known.meetings.counts["rot"]:
        return
    inode = known.broker.machine.disk.files.get(partition.log.segments[1].path)
    if inode is not None and len(inode.written) > 200:
        inode.written[150] ^= 1
        known.meetings.note("rot")


def _lasts(kind: Kind) -> Callable[[random.Random, int, str], Faults]:
    return lambda rng, at_ms, host: [ScheduledFault(at_ms, kind, host, for_ms=rng.randrange(1, LASTS_MS_MAX))]


def _dies(rng: random.Random, at_ms: int, host: str) -> Faults:
    return [ScheduledFault(at_ms, rng.choice([Kind.KILL, Kind.POWER]), host, for_ms=DOWN_MS)]


def _is_ambushed(rng: random.Random, at_ms: int, host: str) -> Faults:
    """A few disk operations after an act of some kind."""
    after = Trigger(rng.randrange(1, 8), STEP, host=host, suffix=AFTER + rng.choice(ACTS).replace(" ", "-"))
    return [ScheduledFault(at_ms, rng.choice([Kind.KILL, Kind.POWER]), host, for_ms=DOWN_MS, when=after)]


def _is_cut_off_from_one(rng: random.Random, at_ms: int, host: str) -> Faults:
    link = (host, rng.choice(CLIENTS))
    return [ScheduledFault(at_ms, Kind.CUT, *rng.choice((link, link[::-1])), rng.randrange(1, LASTS_MS_MAX))]


def _rots(rng: random.Random, at_ms: int, host: str) -> Faults:
    return [ScheduledFault(at_ms, Kind.ROT, host)]


TROUBLES: Final = (
    *(_lasts(kind) for kind in (Kind.DISK_FULL, Kind.NO_FILES, Kind.PAUSE, Kind.DARK)),
    *(_dies, _is_ambushed, _is_ambushed, _rots, _is_cut_off_from_one),
)


def troubles(simulation: Simulation) -> Faults:
    return one_by_one(simulation.random("troubles"), TROUBLES, begin_ms=300, end_ms=WORK_MS, pause_ms=(300, 1800), names=[HOST])


async def is_intact(trial: Trial) -> list[str]:
    """The broker takes records again, and has what was promised."""
    known = _crowd(trial).known
    await heal(known)
    await judge(known)
    judge_events(known, trial.events)  # before everything that is still on is cancelled
    trial.states.update(known.meetings.counts)
    trial.states["acknowledged records"] = len(known.acknowledged)
    return []


CROWD: Final = Exploration(
    crowd_node,
    Crowd,
    troubles,
    [is_intact],
    acts=met,
    roles={},
    may_cut_power=lambda trial: lambda: trial.nodes[0].is_flushed,  # type: ignore[attr-defined]
    work_ms=WORK_MS,
    rare=(
        *("deletion of a topic during CLEAN_JOB", "deletion of a topic during SCRUB_JOB", "deletion of a topic during COPY_JOB"),
        *("retention during CLEAN_JOB", "retention during SCRUB_JOB", "retention during COPY_JOB"),
        *("install after roll", "install after retention", "install during SCRUB_JOB", "install during COPY_JOB"),
        *("arrival of a move during CLEAN_JOB", "arrival of a move during SCRUB_JOB", "arrival of a move"),
        *("kill during CLEAN_JOB", "kill during COPY_JOB", "kill during install", "kill after arrival of a move"),
        *("kill after deletion of a topic", "kill after retention", "kill after roll"),
        *("power cut after arrival of a move", "power cut during CLEAN_JOB", "power cut during COPY_JOB", "power cut during install"),
        *("ENOSPC during CLEAN_JOB", "ENOSPC during COPY_JOB", "EMFILE during CLEAN_JOB", "EMFILE during COPY_JOB"),
        *("rot during CLEAN_JOB", "pause", "pause during CLEAN_JOB", "dark", "requests cut", "answers cut"),
        *("event segment_damaged", "event log_cleaned", "event replica_moved", "event partition_offline"),
    ),
    many=250,
)
