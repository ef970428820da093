"""One broker, its producers, the members of its group and a committer: what a broker without replicas promises.

A killed process loses nothing that was acknowledged; a power cut loses nothing with flush.messages=1, as half of the seeds have it, and
otherwise at most the end of each log (ARCHITECTURE.md has the table). Topics once created are there.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import QuorumNode

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.sim import checkers
from ottla.sim.cluster import DATA_DIRECTORY, PORT, SimClient, Simulation
from ottla.sim.disk_faults import Fault
from ottla.sim.process import PowerCut
from ottla.sim.schedule.drawing import draw_schedule
from ottla.sim.schedule.fault import STEP, Kind, ScheduledFault, Trigger
from ottla.sim.workload import History, commit_up, count_while
from ottla.types import TopicPartition

HOST: Final = "broker"
TOPICS: Final = {"orders": 2, "payments": 1}
PARTITIONS: Final = [TopicPartition(topic, index) for topic, count in TOPICS.items() for index in range(count)]
GROUP, ALONE = "readers", "alone"
ONCE, PLAIN, COMMITTER, MEMBERS = "once", "plain", "committer", ("member-1", "member-2")
CLIENTS: Final = (ONCE, PLAIN, COMMITTER, *MEMBERS)
RETRY_SECONDS: Final = 0.1
REQUEST_TIMEOUT_MS: Final = 2000
CONVERGES_SECONDS: Final = 60.0
"""Within this time after the last fault the group has read everything."""
PAUSE_SECONDS_MAX: Final = 0.3
"""Of a producer, after seven records."""
FAULTS_MS: Final = 4000
"""Faults start within this time; clients start before it and end after it."""
RECORDS: Final = 60
COMMITS: Final = 15
STEPS_MAX: Final = 180
"""A little more than the disk operations of a short run without a fault."""
DOWN_MS: Final = 200
SILENT_MS_MAX: Final = 8000


class LoneNode(QuorumNode):
    """``history``: its crashes are power cuts; what a killed process had written stays."""

    def __init__(self, simulation: Simulation, *, is_flushed: bool, segment_bytes: int) -> None:
        super().__init__(simulation, 1, host=HOST)
        self.history = History()
        self.is_flushed = is_flushed
        self._properties = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{PORT}",
            "log.dirs": DATA_DIRECTORY,
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.segment.bytes": str(segment_bytes),
            "log.index.interval.bytes": "200",
        } | ({"log.flush.interval.messages": "1"} if is_flushed else {})

    async def format(self, features: object = None) -> None:
        pass

    def kill(self, *, power_cut: bool) -> None:
        self.history.crashes += power_cut
        super().kill(power_cut=power_cut)

    @property
    def keeps_all(self) -> bool:
        return self.is_flushed or not self.history.crashes


def lone_node(simulation: Simulation, *, is_flushed: bool | None = None, segment_bytes: int = 4096) -> list[QuorumNode]:
    drawn = simulation.random("properties").random() < 0.5
    return [LoneNode(simulation, is_flushed=drawn if is_flushed is None else is_flushed, segment_bytes=segment_bytes)]


def _node(trial: Trial) -> LoneNode:
    [node] = trial.nodes
    assert isinstance(node, LoneNode)
    return node


class LoneWork:
    """``is_short``: clients end by themselves, make the topics themselves, and there is no group."""

    def __init__(self, trial: Trial, *, is_short: bool = False) -> None:
        self._trial = trial
        self._node = _node(trial)
        self._history = self._node.history
        self._is_short = is_short
        self._read: dict[tuple[TopicPartition, int], bytes] = {}  # by the group
        self._clients = {name: self._client(name) for name in CLIENTS[: 3 if is_short else None]}
        trial.others |= {name: client.machine for name, client in self._clients.items()}

    def _client(self, name: str) -> SimClient:
        return SimClient(self._trial.simulation, name, self._trial.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)

    async def prepare(self) -> None:
        """The topics are there, unless clients are to make them."""
        if not self._is_short:
            admin = self._client("admin")
            await admin.machine.run(self._make_topics(admin))

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        plain = ProducerSettings(acks="1", enable_idempotence=False, linger_ms=1, batch_size=300)
        work = {ONCE: self._produce(ONCE, ProducerSettings(linger_ms=1, batch_size=200)), PLAIN: self._produce(PLAIN, plain)}
        work[COMMITTER] = self._commit()
        clients = self._clients
        working = [clients[name].machine.run(job) for name, job in work.items()]
        return working if self._is_short else [self._converge(working), *(self._take_part(clients[name]) for name in MEMBERS)]

    async def _make_topics(self, client: SimClient) -> None:
        """Until they are there; of clients that make the same one gets to."""
        while True:
            admin = Admin(client.cluster())
            try:
                await admin.create_topics([NewTopic(topic, count, 1) for topic, count in TOPICS.items()])
                return
            except KafkaError:
                await asyncio.sleep(0.05)
            finally:
                await admin.close()

    async def _produce(self, name: str, settings: ProducerSettings) -> None:
        client, is_over = self._clients[name], self._trial.is_over
        if self._is_short:
            await self._make_topics(client)
        await count_while(
            self._history,
            client.cluster(),
            name,
            PARTITIONS,
            goes_on=lambda number: number < RECORDS if self._is_short else not is_over.is_set(),
            settings=settings,
            pause_seconds_max=0.01 if self._is_short else PAUSE_SECONDS_MAX,
        )

    async def _commit(self) -> None:
        client = self._clients[COMMITTER]
        if self._is_short:
            await self._make_topics(client)
        await commit_up(self._history, client.cluster(), ALONE, PARTITIONS[0], commits=COMMITS)

    async def _take_part(self, client: SimClient) -> None:
        with suppress(PowerCut):
            await client.machine.run(self._poll_again_and_again(client))

    async def _poll_again_and_again(self, client: SimClient) -> None:
        """A member polls, leaves, and comes back."""
        membership = MembershipSettings(session_timeout_ms=6000, heartbeat_interval_ms=500)
        settings = ConsumerSettings(
            group_id=GROUP, membership=membership, auto_commit_interval_ms=200, fetch=FetchSettings(auto_offset_reset="earliest")
        )
        while True:
            cluster = client.cluster()
            consumer = Consumer(cluster, settings)
            try:
                consumer.subscribe(list(TOPICS))
                for _ in range(10 + cluster.world.random.randrange(50)):
                    for record in await consumer.poll(100):
                        self._note(TopicPartition(record.topic, record.partition), record.offset, record.value or b"")
            except KafkaError:
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                with suppress(KafkaError):  # what it could not commit is read again
                    await consumer.close()

    def _note(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        if self._history.sent.get(value, ("", None))[1] != partition:
            self._trial.result.findings.append(f"{partition} offset {offset}: a reader got {value!r}, which was never sent there")
        self._read[partition, offset] = value

    async def _converge(self, working: list[Coroutine[Any, Any, None]]) -> None:
        """The group has read every record within its time, an acknowledged one at its offset; then its members are killed."""
        await asyncio.gather(*working)
        loop = asyncio.get_running_loop()
        until = loop.time() + CONVERGES_SECONDS
        while self._node.broker is None:
            await asyncio.sleep(0.1)
        logs = await self._node.logs()
        stored = {(partition, offset): value for partition in PARTITIONS for offset, value in logs[partition]}
        if self._node.keeps_all:
            while loop.time() < until and not self._read.keys() >= stored.keys():
                await asyncio.sleep(0.1)
            missing = [f"{key} offset {offset}: no member read it" for key, offset in sorted(stored.keys() - self._read.keys())]
            self._trial.result.findings += missing + [
                f"{partition} offset {offset}: {self._read[partition, offset]!r} was read, {value!r} is there"
                for (partition, offset), value in stored.items()
                if self._read.get((partition, offset), value) != value
            ]
        for name in MEMBERS:
            self._clients[name].machine.kill_process()


async def promises_are_kept(trial: Trial) -> list[str]:
    """What the broker has, and what clients were answered."""
    node = _node(trial)
    history = node.history
    assert node.broker is not None, "every node is up"
    found = [] if node.broker.failure is None else [f"the broker has ended: {node.broker.failure}"]
    logs = await node.logs()
    since = 0 if node.keeps_all else history.crashes
    if node.keeps_all and not trial.injector.counts[Kind.DISK_FAILS.value]:
        found += [f"{value!r} was refused" for value in history.refused]
    found += checkers.acknowledged_are_kept(history, logs, since_crash=since)
    found += checkers.logs_are_dense(logs)
    found += checkers.nothing_is_invented(history, logs)
    found += checkers.idempotent_producers_store_once_and_in_order(history, logs)
    admin = Admin(node.client("auditor"))
    committed = {key: position.offset for key, position in (await admin.committed_offsets(ALONE)).items()}
    await admin.close()
    trial.states["acknowledged records"] = len(history.acknowledged)
    trial.states["disk operations"] = node.machine.disk.steps
    trial.states["power cuts"] = history.crashes
    return found + checkers.commits_are_kept(history, committed, since_crash=since)


def failing_once(trial: Trial) -> Any:
    """One operation of the disk fails, with the error of that number. The log takes no further writes, so the broker is restarted."""

    async def carry_out(fault: ScheduledFault) -> None:
        node, disk = _node(trial), _node(trial).machine.disk
        operation, _, suffix = fault.of.partition(":")
        disk.faults.append(Fault(operation, suffix, int(fault.by) or errno.EIO))
        await asyncio.sleep(fault.for_ms / 1000)
        disk.faults.clear()
        node.kill(power_cut=False)
        trial.injector.begin(HOST)

    return lambda fault: carry_out(fault) if fault.kind is Kind.DISK_FAILS else None


def swarm(simulation: Simulation) -> list[ScheduledFault]:
    """Faults of any hosts that overlap."""
    links = [link for client in CLIENTS for link in ((client, HOST), (HOST, client))]
    return draw_schedule(simulation.random("schedule"), nodes=[HOST], others=CLIENTS, links=links, ms=FAULTS_MS)


def at_step(nth: int, kind: Kind, host: str = HOST, peer: str = "", for_ms: int = DOWN_MS) -> ScheduledFault:
    """Before the broker's n-th disk operation."""
    return ScheduledFault(0, kind, host, peer, for_ms, when=Trigger(nth, STEP, host=HOST))


def at_steps(simulation: Simulation) -> list[ScheduledFault]:
    """A death before some disk operation, perhaps another one in the recovery, and perhaps a silence of the broker, or of a link."""
    rng = simulation.random("schedule")
    death, step = Kind.POWER if rng.random() < 0.66 else Kind.KILL, rng.randrange(1, STEPS_MAX)
    faults = [at_step(step, death)]
    if rng.random() < 0.5:
        faults.append(at_step(step + rng.randrange(1, 60), death))
    if rng.random() < 0.5:
        kind, host, peer = rng.choice(((Kind.PAUSE, HOST, ""), (Kind.DARK, HOST, ""), (Kind.CUT, ONCE, HOST), (Kind.CUT, HOST, ONCE)))
        faults.append(at_step(rng.randrange(1, STEPS_MAX), kind, host, peer, rng.randrange(1, SILENT_MS_MAX)))
    return faults
