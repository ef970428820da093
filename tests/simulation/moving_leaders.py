"""A broker that gains and loses the leadership of its partitions under load, on a slow disk: what it served, wrote and acknowledged.

Beside it there is another broker in the image alone, to whom partitions are given and from whom they come back, as a controller would
give them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.broker.leaders import NOBODY, OTHER, add_other, give, own_id
from tests.simulation.draws import Faults, one_by_one
from tests.simulation.explorer import Trial
from tests.simulation.lone_broker import HOST, LoneNode
from tests.simulation.quorum_nodes import QuorumNode, started

from ottla.broker.coordinators import runtime, shard
from ottla.broker.coordinators.shard import Shard
from ottla.broker.tasks.slices import Slices
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.records.batch import iterate_batches
from ottla.sim.cluster import Simulation
from ottla.sim.schedule.fault import Kind, ScheduledFault
from ottla.storage.log.replay import records_between
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

PARTITIONS: Final = 2
WORK_MS: Final = 12_000
HEAL_SECONDS: Final = 60
GROUPS: Final = 3
TIMEOUT_MS: Final = 4000
OWN: Final = 1
KEYS: Final = [TopicPartition(topic, index) for topic in ("t", GROUP_METADATA_TOPIC) for index in range(PARTITIONS)]


def leading_node(simulation: Simulation) -> list[QuorumNode]:
    node = LoneNode(simulation, is_flushed=False, segment_bytes=1 << 20)
    node._properties = dict(node._properties) | {"group.initial.rebalance.delay.ms": "100", "log.cleaner.backoff.ms": "500"}
    node.machine.disk._delay_ms_max = simulation.random("disk of leaders").choice([2.0, 40.0])
    return [node]


def _is_led(rng: random.Random, at_ms: int, _: str) -> Faults:
    """By another broker, by none, or by this one in another epoch."""
    key = rng.choice(KEYS)
    for_ms = rng.choice([0, 0, 2, 20, 200, 600]) if rng.random() < 0.7 else rng.randint(20, 600)
    return [ScheduledFault(at_ms, Kind.LEAD, f"{key.topic}-{key.partition}", for_ms=for_ms, by=rng.choice([OTHER, NOBODY, OWN, OWN]))]


def leaders(simulation: Simulation) -> Faults:
    return one_by_one(simulation.random("trouble"), [_is_led], begin_ms=0, end_ms=WORK_MS, pause_ms=(0, 20), names=[HOST])


@contextmanager
def slow_shards(trial: Trial) -> Iterator[None]:
    """Loads and closings take their time, for much to happen meanwhile; each coordinator is known."""
    rng = trial.simulation.random("slices")

    class Watched(Shard):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            assert isinstance(trial.work, Leading)
            trial.work.shards.append(self)

    class Slow(Slices):
        async def next(self) -> None:
            await asyncio.sleep(rng.choice([0, 0.001, 0.01]))

    kept = {name: getattr(shard, name) for name in ("Slices", "_LOOK_EVERY")}
    vars(runtime).update(Shard=Watched)
    vars(shard).update(Slices=Slow, _LOOK_EVERY=8)
    try:
        yield
    finally:
        vars(runtime).update(Shard=Shard)
        vars(shard).update(kept)


class Leading:
    """Clients of the broker, and what is known of who leads."""

    def __init__(self, trial: Trial) -> None:
        [self.broker] = trial.nodes
        self.produced: dict[TopicPartition, dict[int, bytes]] = {}  # acknowledged, by offset
        self.committed: dict[str, int] = {}  # by group, the newest that was acknowledged
        self.read: set[bytes] = set()
        self.shards: list[Shard] = []
        self.states = trial.states
        self.findings = trial.result.findings
        self.is_over = trial.is_over
        self.led_epochs: dict[TopicPartition, set[int]] = {}
        self._away: dict[TopicPartition, int] = {}  # surely not led here; the number tells one absence from the next
        self._absences = 0
        self._producing = 2
        self._moving: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)

    def client(self, name: str) -> Cluster:
        return self.broker.client(name, request_timeout_ms=TIMEOUT_MS)

    def act(self, fault: ScheduledFault) -> Coroutine[Any, Any, None] | None:
        return self._lead(fault) if fault.kind is Kind.LEAD else None

    async def _lead(self, fault: ScheduledFault) -> None:
        topic, _, index = fault.host.rpartition("-")
        key, leader = TopicPartition(topic, int(index)), int(fault.by)
        self.states[f"{'records' if topic == 't' else 'groups'} to {leader if leader != OWN else 'this broker'}"] += 1
        await self._move(key, leader)
        await asyncio.sleep(fault.for_ms / 1000)
        await self._move(key, OWN)

    async def _move(self, key: TopicPartition, leader: int) -> None:
        async with self._moving[key]:
            if leader == OWN:
                self._away.pop(key, None)
            epoch = await give(self.broker, leader, key.topic, key.partition)
            if leader == OWN:
                self.led_epochs.setdefault(key, {0}).add(epoch)
            else:
                self._absences += 1
                self._away[key] = self._absences

    async def prepare(self) -> None:
        """The topics are there, and the other broker."""
        await started([self.broker])
        self.admin = Admin(self.client("admin"))
        await self.admin.create_topics([NewTopic("t", PARTITIONS)])
        await self.admin._coordinator("g0")  # which makes the groups' topic
        await add_other(self.broker)
        assert own_id(self.broker) == OWN

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        committing = [self._commit(f"g{number}") for number in range(GROUPS)]
        return [self._produce(0), self._produce(1), self._probe(), self._watch(), self._consume(), *committing]

    async def _produce(self, number: int) -> None:
        producer = Producer(
            self.client(f"producer-{number}"), ProducerSettings(linger_ms=0, acks="all" if number else "1", delivery_timeout_ms=60_000)
        )
        count = 0

        async def send(key: TopicPartition, value: bytes) -> None:
            try:
                sent = await producer.send_and_wait(key.topic, value, partition=key.partition)
            except KafkaError as error:
                self.states[f"not delivered: {error.code.name}"] += 1
                return
            if self.produced.setdefault(key, {}).setdefault(sent.offset, value) != value:
                self.findings.append(f"offset {sent.offset} of {key} was acknowledged twice")

        sending: set[asyncio.Task[None]] = set()
        while not self.is_over.is_set():
            count += 1
            task = asyncio.get_running_loop().create_task(send(TopicPartition("t", count % PARTITIONS), b"%d-%d" % (number, count)))
            sending.add(task)
            await asyncio.sleep(0.01)
        await asyncio.gather(*sending)
        self._producing -= 1
        await producer.close()

    async def _consume(self) -> None:
        settings = ConsumerSettings(group_id="readers", fetch=FetchSettings(auto_offset_reset="earliest"))
        consumer = Consumer(self.client("consumer"), settings)
        consumer.subscribe(["t"])
        deadline = asyncio.get_running_loop().time() + WORK_MS / 1000 + HEAL_SECONDS

        def is_done() -> bool:
            wanted = {value for values in self.produced.values() for value in values.values()}
            return not self._producing and wanted <= self.read

        while not is_done() and asyncio.get_running_loop().time() < deadline:
            try:
                self.read |= {record.value or b"" for record in await consumer.poll(500)}
            except KafkaError as error:
                self.states[f"consumer: {error.code.name}"] += 1
        await consumer.close()

    async def _commit(self, group: str) -> None:
        offset = 0
        cluster = self.client(f"committer-{group}")
        topic_id = (await self.admin.describe_topic("t")).topic_id
        while not self.is_over.is_set():
            offset += 1
            topics = [OffsetCommitRequestTopic("t", topic_id, [OffsetCommitRequestPartition(0, offset)])]
            try:
                node = await cluster.coordinator(group)
                answer = await cluster.ask(node, OffsetCommitRequest(group_id=group, topics=topics), OffsetCommitResponse)
            except KafkaError as error:
                self.states[f"commit: {error.code.name}"] += 1
            else:
                code = answer.topics[0].partitions[0].error_code
                self.states[f"commit: {code}"] += 1
                if code == 0:
                    self.committed[group] = offset
            await asyncio.sleep(0.02)
        await cluster.close()

    async def _probe(self) -> None:
        """Nothing is served of a partition that is led elsewhere for as long as the question is under way."""
        cluster = self.client("prober")
        assert self.broker.broker is not None
        topic_id = self.broker.broker.image.topics["t"].topic_id
        while not self.is_over.is_set():
            before = dict(self._away)
            wanted = [FetchPartition(index, fetch_offset=0, partition_max_bytes=100) for index in range(PARTITIONS)]
            listed = [ListOffsetsPartition(index, timestamp=-1) for index in range(PARTITIONS)]
            try:
                fetched = await cluster.ask(None, FetchRequest(min_bytes=1, topics=[FetchTopic("t", topic_id, wanted)]), FetchResponse)
                found = await cluster.ask(None, ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", listed)]), ListOffsetsResponse)
            except KafkaError:
                continue
            codes = [(data.partition_index, data.error_code) for data in fetched.responses[0].partitions]
            codes += [(result.partition_index, result.error_code) for result in found.topics[0].partitions]
            for index, code in codes:
                key = TopicPartition("t", index)
                if key in before and self._away.get(key) == before[key]:
                    self.states["asked while it is led elsewhere"] += 1
                    if code == 0:
                        self.findings.append(f"{key} was served while it is led elsewhere")
            await asyncio.sleep(0.01)
        await cluster.close()

    async def _watch(self) -> None:
        """At most one coordinator is at work for each partition, in the epoch that this broker leads it in."""
        assert self.broker.broker is not None
        partitions = self.broker.broker.partitions.by_name[GROUP_METADATA_TOPIC]
        while not self.is_over.is_set():
            working = [found for found in self.shards if not found.is_closed]
            counts = Counter(found.partition.index for found in working)
            if any(count > 1 for count in counts.values()):
                self.findings.append(f"several coordinators are at work: {counts}")
            for found in working:
                if found.leader_epoch != partitions[found.partition.index].led_epoch:
                    self.findings.append(f"a coordinator of epoch {found.leader_epoch} is at work after it")
            self.states["coordinators that load"] += sum(not found._is_loaded for found in working)
            await asyncio.sleep(0.003)


async def promises_are_kept(trial: Trial) -> list[str]:
    """What was acknowledged is there, is read, and was written in epochs that the broker led."""
    work, findings = trial.work, list[str]()
    assert isinstance(work, Leading)
    assert work.broker.broker is not None
    for partition in work.broker.broker.partitions.all():
        log, key = partition.log, partition.key
        reading = records_between(log, log.log_start_offset, log.log_end_offset, check_crc=True)
        stored = {record.offset: record.value or b"" for records in [found async for found in reading] for record in records}
        if key.topic == "t":
            lost = {offset for offset, value in work.produced.get(key, {}).items() if stored.get(offset) != value}
            if lost:
                findings.append(f"acknowledged records of {key} are not in the log: {sorted(lost)[:5]}")
            once = [value for value in stored.values() if value.startswith(b"1-")]  # of the idempotent producer
            if len(set(once)) < len(once):
                findings.append(f"{key} has records of an idempotent producer twice")
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            part = await log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset)
            assert part is not None
            for _, header in iterate_batches(part.region.read()):
                epoch, end = log.end_offset_for_epoch(header.leader_epoch)
                if epoch != header.leader_epoch or end <= header.last_offset:
                    findings.append(f"{key}: epoch {header.leader_epoch} ends at {end}, and wrote offset {header.last_offset}")
                if header.leader_epoch not in work.led_epochs.get(key, {0}):
                    findings.append(f"{key}: offset {header.base_offset} is of epoch {header.leader_epoch}, which this broker did not lead")
                offset = header.last_offset + 1
    wanted = {value for values in work.produced.values() for value in values.values()}
    if not wanted <= work.read:
        findings.append(
            f"{len(wanted - work.read)} of {len(wanted)} acknowledged records were never read: {sorted(wanted - work.read)[:5]}"
        )
    for group, offset in work.committed.items():
        found = (await work.admin.committed_offsets(group)).get(TopicPartition("t", 0))
        if found is None or found.offset < offset:
            findings.append(f"group {group} committed {offset}, and has {found}")
    await work.admin.close()
    trial.states["acknowledged records"] = sum(map(len, work.produced.values()))
    trial.states["acknowledged commits"] = sum(work.committed.values())
    return findings
