"""Crash and recover: one broker dies before a chosen disk operation, comes back, and is held to its promises.

Two producers (one idempotent), two topics with small segments, a committer. The crash is a killed process (written bytes
survive) or a power cut (unsynced bytes go as far as the seed says); recovery itself may be crashed again. The broker may also
stand still for a while, or be cut off, one way or both. Afterwards the
clients go on until each has its answers, and everything is compared.

What is promised, with one replica (ARCHITECTURE.md has the table): a killed process loses nothing that was acknowledged; a
power cut loses nothing with flush.messages=1, and otherwise at most the end of each log. Topics once created are there.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.client.producer import ProducerSettings
from ottla.errors import KafkaError
from ottla.sim import checkers
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk import SimDisk
from ottla.sim.faults import Fault
from ottla.sim.loop import run
from ottla.sim.network import Fabric
from ottla.sim.process import PowerCut
from ottla.sim.workload import History, commit_up, count_up
from ottla.types import TopicPartition

TOPICS = {"orders": 2, "payments": 1}
DOWN_SECONDS = 0.2
FAILED_SECONDS = 2.0
SILENT_SECONDS_MAX = 8.0
REQUEST_TIMEOUT_MS = 5000
CLIENT = "once"
"""The idempotent producer: it is the one that a link cut one way is between."""
RECORDS = 60
COMMITS = 15


class Silence(Enum):
    """A reason for which the broker is silent for a while; it comes back by itself."""

    NONE = "none"
    PAUSE = "pause"
    DARK = "dark"
    REQUESTS_CUT = "requests cut"  # of one client
    ANSWERS_CUT = "answers cut"  # to one client


@dataclass(frozen=True, slots=True)
class Plan:
    """``crash_step``: the disk operation before which the machine dies, None for never. ``again_step``: one of the recovery.

    A fault and a silence have plans of their own.
    """

    seed: int
    crash_step: int | None = None
    power_cut: bool = False
    is_flushed: bool = False  # flush.messages=1
    again_step: int | None = None
    fault: Fault | None = None  # injected once the disk has done ``fault_step`` operations
    fault_step: int = 0
    silence: Silence = Silence.NONE  # starts once the disk has done ``silence_step`` operations
    silence_step: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    findings: list[str]
    digest: str
    steps: int  # disk operations up to the end of the work, without a crash
    acknowledged: int
    crashes: int
    events: str


def explore(plan: Plan) -> Outcome:
    """One run. ``findings`` is empty when every promise held."""
    simulation = Simulation(plan.seed)
    flush = {"log.flush.interval.messages": "1"} if plan.is_flushed else {}
    broker = SimBroker(simulation, {"log.segment.bytes": "1024", "log.index.interval.bytes": "200"} | flush)
    history = History()

    async def main() -> tuple[list[str], int]:
        await _start(broker, plan, history)
        work: asyncio.Future[Any] = asyncio.gather(*_work(broker, history))
        if plan.fault is not None:
            work = asyncio.gather(work, _break_disk(broker, plan.fault, plan.fault_step, history))
        silence = None if plan.silence is Silence.NONE else asyncio.create_task(_be_silent(simulation.fabric, broker, plan))
        while not work.done():
            await asyncio.sleep(0.05)
            if broker.broker is None:
                await asyncio.sleep(DOWN_SECONDS)
                await _start(broker, plan, history)
        await work
        if silence is not None:
            silence.cancel()
        steps = broker.machine.disk.steps
        return await _verdict(broker, plan, history), steps

    findings, steps = run(main())
    return Outcome(findings, simulation.trace.digest, steps, len(history.acknowledged), history.crashes, simulation.trace.tail())


async def _break_disk(broker: SimBroker, fault: Fault, step: int, history: History) -> None:
    """One operation fails. A log that failed takes no further writes, so after a while the broker is restarted."""
    await _steps_done(broker.machine.disk, step)
    broker.machine.disk.faults.append(fault)
    await asyncio.sleep(FAILED_SECONDS)
    broker.machine.disk.faults.clear()
    history.crashes += 1
    broker.kill(power_cut=False)


async def _be_silent(fabric: Fabric, broker: SimBroker, plan: Plan) -> None:
    """For a part of what clients wait for, or longer."""
    machine = broker.machine
    await _steps_done(machine.disk, plan.silence_step)
    link = (CLIENT, machine.name) if plan.silence is Silence.REQUESTS_CUT else (machine.name, CLIENT)
    process = machine.process
    match plan.silence:
        case Silence.NONE:
            raise AssertionError("there is a silence")
        case Silence.PAUSE:
            machine.pause_process()
        case Silence.DARK:
            fabric.darken(machine.name)
        case Silence.REQUESTS_CUT | Silence.ANSWERS_CUT:
            fabric.cut_link(*link)
    try:
        await asyncio.sleep(SILENT_SECONDS_MAX * random.Random(f"{plan.seed}/silence").random())
    finally:
        fabric.heal()
        if process is not None:
            process.resume()


async def _steps_done(disk: SimDisk, count: int) -> None:
    """So many operations have started that change the disk."""
    reached = asyncio.Event()

    def on_step(operation: str, path: str, what: str) -> None:
        if disk.steps >= count:
            reached.set()

    disk.on_step = on_step
    if disk.steps < count:
        await reached.wait()


def _client(broker: SimBroker, name: str) -> Cluster:
    return broker.client(name, request_timeout_ms=REQUEST_TIMEOUT_MS)


def _work(broker: SimBroker, history: History) -> list[asyncio.Task[None]]:
    partitions = [TopicPartition(topic, index) for topic, count in TOPICS.items() for index in range(count)]
    loop = asyncio.get_running_loop()

    async def produce(name: str, settings: ProducerSettings) -> None:
        await _create_topics(broker, f"admin-{name}")
        await count_up(history, _client(broker, name), name, partitions, records=RECORDS, settings=settings)

    async def commit() -> None:
        await _create_topics(broker, "admin-committer")
        await commit_up(history, _client(broker, "committer"), "group", partitions[0], commits=COMMITS)

    return [
        loop.create_task(produce(CLIENT, ProducerSettings(linger_ms=1, batch_size=200))),
        loop.create_task(produce("plain", ProducerSettings(acks="1", enable_idempotence=False, linger_ms=1, batch_size=300))),
        loop.create_task(commit()),
    ]


async def _create_topics(broker: SimBroker, name: str) -> None:
    """Until they are there; every client asks for them, one gets to make them."""
    while True:
        admin = Admin(_client(broker, name))
        try:
            await admin.create_topics([NewTopic(topic, count, 1) for topic, count in TOPICS.items()])
            return
        except KafkaError:
            await asyncio.sleep(0.05)
        finally:
            await admin.close()


async def _start(broker: SimBroker, plan: Plan, history: History) -> None:
    """The broker runs; on the way there it may be crashed, once more than before."""
    while True:
        disk = broker.machine.disk
        begun = disk.steps

        def crash() -> None:
            history.crashes += 1
            broker.kill(power_cut=plan.power_cut)

        step = {0: plan.crash_step, 1: plan.again_step}.get(history.crashes)
        try:
            await broker.start(crash_at=None if step is None else begun + step, on_crash=crash)
        except PowerCut:
            await asyncio.sleep(DOWN_SECONDS)
            continue
        return


async def _verdict(broker: SimBroker, plan: Plan, history: History) -> list[str]:
    logs = await broker.logs()
    keeps_all = not plan.power_cut or plan.is_flushed
    since = 0 if keeps_all else history.crashes
    findings = checkers.acknowledged_are_kept(history, logs, since_crash=since)
    findings += checkers.logs_are_dense(logs)
    findings += checkers.nothing_is_invented(history, logs)
    findings += checkers.idempotent_producers_store_once_and_in_order(history, logs)
    admin = Admin(broker.client("auditor"))
    committed = {key: found.offset for key, found in (await admin.committed_offsets("group")).items()}
    await admin.close()
    findings += checkers.commits_are_kept(history, committed, since_crash=since)
    if keeps_all and plan.fault is None:
        findings += [f"{value!r} was refused" for value in history.refused]
    return findings
