"""A broker that gains and loses the leadership of its partitions under load, on a slow disk: what it served, wrote and acknowledged.

Beside it there is another broker in the image alone, to whom partitions are given and from whom they come back, as a controller would
give them. ``explore`` plays one seed; ``Run.findings`` is empty when every promise was kept.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import structlog
from tests.broker.leaders import NOBODY, OTHER, add_other, give, own_id

from ottla.broker.coordinators import runtime, shard
from ottla.broker.coordinators.shard import Shard
from ottla.broker.tasks.slices import Slices
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetcher import FetchSettings
from ottla.client.producer import Producer, ProducerSettings
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
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.storage.log.replay import records_between
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

PARTITIONS = 2
WORK_SECONDS = 12
HEAL_SECONDS = 60
GROUPS = 3
TIMEOUT_MS = 4000


@dataclass
class Run:
    """What one seed met and found."""

    findings: list[str] = field(default_factory=list)
    produced: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)  # acknowledged, by offset
    committed: dict[str, int] = field(default_factory=dict)  # by group, the newest that was acknowledged
    read: set[bytes] = field(default_factory=set)
    states: Counter[str] = field(default_factory=Counter)
    digest: str = ""


class World:
    """One broker, and what is known of who leads."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.rng = self.simulation.random("trouble")
        properties = {"group.initial.rebalance.delay.ms": "100", "log.cleaner.backoff.ms": "500"}
        self.broker = SimBroker(self.simulation, properties, disk_delay_ms_max=self.rng.choice([2.0, 40.0]))
        self.result = Run()
        self.is_over = asyncio.Event()
        self.is_all_known = False  # what was acknowledged, after that
        self.away: dict[TopicPartition, int] = {}  # surely not led here; the number tells one absence from the next
        self.absences = 0
        self.led_epochs: dict[TopicPartition, set[int]] = {}
        self.shards: list[Shard] = []

    def client(self, name: str) -> Cluster:
        return self.broker.client(name, request_timeout_ms=TIMEOUT_MS)

    async def move(self, key: TopicPartition, leader: int) -> None:
        if leader == own_id(self.broker):
            self.away.pop(key, None)
        epoch = await give(self.broker, leader, key.topic, key.partition)
        if leader == own_id(self.broker):
            self.led_epochs.setdefault(key, {0}).add(epoch)
        else:
            self.absences += 1
            self.away[key] = self.absences


def explore(seed: int) -> Run:
    world = World(seed)
    result = world.result

    class Watched(Shard):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            world.shards.append(self)

    class Slow(Slices):
        """Loads and closings take their time, for much to happen meanwhile."""

        async def next(self) -> None:
            await asyncio.sleep(world.rng.choice([0, 0.001, 0.01]))

    kept = {name: getattr(shard, name) for name in ("Slices", "_LOOK_EVERY")}
    vars(runtime).update(Shard=Watched)
    vars(shard).update(Slices=Slow, _LOOK_EVERY=8)
    try:
        with structlog.testing.capture_logs() as events:
            run(_main(world))
    finally:
        vars(runtime).update(Shard=Shard)
        vars(shard).update(kept)
    for event in events:
        if event["log_level"] in ("error", "critical"):
            result.findings.append(f"{event['event']}: {event.get('reason') or event.get('error') or event.get('exc_info')!r}")
        result.states[event["event"]] += 1
    result.digest = world.simulation.trace.digest
    return result


async def _main(world: World) -> None:
    broker = world.broker
    await broker.start()
    admin = Admin(world.client("admin"))
    await admin.create_topics([NewTopic("t", PARTITIONS)])
    await admin._coordinator("g0")  # which makes the groups' topic
    await add_other(broker)
    loop = asyncio.get_running_loop()
    working = [loop.create_task(work) for work in (_produce(world, 0), _produce(world, 1), _probe(world), _watch(world))]
    consuming = loop.create_task(_consume(world))
    working += [loop.create_task(_commit(world, f"g{number}", admin)) for number in range(GROUPS)]
    await _trouble(world)
    world.is_over.set()
    async with asyncio.timeout(2 * HEAL_SECONDS):
        await asyncio.gather(*working)
        world.is_all_known = True
        await consuming
        await _judge(world, admin)
    await admin.close()


def _keys() -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in ("t", GROUP_METADATA_TOPIC) for index in range(PARTITIONS)]


async def _trouble(world: World) -> None:
    loop = asyncio.get_running_loop()
    own = own_id(world.broker)
    end = loop.time() + WORK_SECONDS
    while loop.time() < end:
        key = world.rng.choice(_keys())
        leader = world.rng.choice([OTHER, NOBODY, own, own])
        world.result.states[f"{'groups' if key.topic != 't' else 'records'} to {leader if leader != own else 'this broker'}"] += 1
        await world.move(key, leader)
        await asyncio.sleep(world.rng.choice([0, 0, 0.002, 0.02, 0.2, 0.6]))
        if world.rng.random() < 0.7:
            await world.move(key, own)
    for key in _keys():
        await world.move(key, own)


async def _produce(world: World, number: int) -> None:
    producer = Producer(
        world.client(f"producer-{number}"), ProducerSettings(linger_ms=0, acks="all" if number else "1", delivery_timeout_ms=60_000)
    )
    count = 0

    async def send(key: TopicPartition, value: bytes) -> None:
        try:
            sent = await producer.send_and_wait(key.topic, value, partition=key.partition)
        except KafkaError as error:
            world.result.states[f"not delivered: {error.code.name}"] += 1
            return
        if world.result.produced.setdefault(key, {}).setdefault(sent.offset, value) != value:
            world.result.findings.append(f"offset {sent.offset} of {key} was acknowledged twice")

    sending: set[asyncio.Task[None]] = set()
    while not world.is_over.is_set():
        count += 1
        task = asyncio.get_running_loop().create_task(send(TopicPartition("t", count % PARTITIONS), b"%d-%d" % (number, count)))
        sending.add(task)
        await asyncio.sleep(0.01)
    await asyncio.gather(*sending)
    await producer.close()


async def _consume(world: World) -> None:
    settings = ConsumerSettings(group_id="readers", fetch=FetchSettings(auto_offset_reset="earliest"))
    consumer = Consumer(world.client("consumer"), settings)
    consumer.subscribe(["t"])
    deadline = asyncio.get_running_loop().time() + WORK_SECONDS + HEAL_SECONDS

    def is_done() -> bool:
        wanted = {value for values in world.result.produced.values() for value in values.values()}
        return world.is_all_known and wanted <= world.result.read

    while not is_done() and asyncio.get_running_loop().time() < deadline:
        try:
            world.result.read |= {record.value or b"" for record in await consumer.poll(500)}
        except KafkaError as error:
            world.result.states[f"consumer: {error.code.name}"] += 1
    await consumer.close()


async def _commit(world: World, group: str, admin: Admin) -> None:
    offset = 0
    cluster = world.client(f"committer-{group}")
    topic_id = (await admin.describe_topic("t")).topic_id
    while not world.is_over.is_set():
        offset += 1
        topics = [OffsetCommitRequestTopic("t", topic_id, [OffsetCommitRequestPartition(0, offset)])]
        try:
            node = await cluster.coordinator(group)
            answer = await cluster.ask(node, OffsetCommitRequest(group_id=group, topics=topics), OffsetCommitResponse)
        except KafkaError as error:
            world.result.states[f"commit: {error.code.name}"] += 1
        else:
            code = answer.topics[0].partitions[0].error_code
            world.result.states[f"commit: {code}"] += 1
            if code == 0:
                world.result.committed[group] = offset
        await asyncio.sleep(0.02)
    await cluster.close()


async def _probe(world: World) -> None:
    """Nothing is served of a partition that is led elsewhere for as long as the question is under way."""
    cluster = world.client("prober")
    assert world.broker.broker is not None
    topic_id = world.broker.broker.image.topics["t"].topic_id
    while not world.is_over.is_set():
        before = dict(world.away)
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
            if key in before and world.away.get(key) == before[key]:
                world.result.states["asked while it is led elsewhere"] += 1
                if code == 0:
                    world.result.findings.append(f"{key} was served while it is led elsewhere")
        await asyncio.sleep(0.01)
    await cluster.close()


async def _watch(world: World) -> None:
    """At most one coordinator is at work for each partition, in the epoch that this broker leads it in."""
    assert world.broker.broker is not None
    partitions = world.broker.broker.partitions.by_name[GROUP_METADATA_TOPIC]
    while not world.is_over.is_set():
        working = [found for found in world.shards if not found.is_closed]
        counts = Counter(found.partition.index for found in working)
        if any(count > 1 for count in counts.values()):
            world.result.findings.append(f"several coordinators are at work: {counts}")
        for found in working:
            if found.leader_epoch != partitions[found.partition.index].led_epoch:
                world.result.findings.append(f"a coordinator of epoch {found.leader_epoch} is at work after it")
        world.result.states["coordinators that load"] += sum(not found._is_loaded for found in working)
        await asyncio.sleep(0.003)


async def _judge(world: World, admin: Admin) -> None:
    result = world.result
    assert world.broker.broker is not None
    for partition in world.broker.broker.partitions.all():
        log, key = partition.log, partition.key
        reading = records_between(log, log.log_start_offset, log.log_end_offset, check_crc=True)
        stored = {record.offset: record.value or b"" for records in [found async for found in reading] for record in records}
        if key.topic == "t":
            lost = {offset for offset, value in result.produced.get(key, {}).items() if stored.get(offset) != value}
            if lost:
                result.findings.append(f"acknowledged records of {key} are not in the log: {sorted(lost)[:5]}")
            once = [value for value in stored.values() if value.startswith(b"1-")]  # of the idempotent producer
            if len(set(once)) < len(once):
                result.findings.append(f"{key} has records of an idempotent producer twice")
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            part = await log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset)
            assert part is not None
            for _, header in iterate_batches(part.region.read()):
                epoch, end = log.end_offset_for_epoch(header.leader_epoch)
                if epoch != header.leader_epoch or end <= header.last_offset:
                    result.findings.append(f"{key}: epoch {header.leader_epoch} ends at {end}, and wrote offset {header.last_offset}")
                if header.leader_epoch not in world.led_epochs.get(key, {0}):
                    result.findings.append(
                        f"{key}: offset {header.base_offset} is of epoch {header.leader_epoch}, which this broker did not lead"
                    )
                offset = header.last_offset + 1
    wanted = {value for values in result.produced.values() for value in values.values()}
    if not wanted <= result.read:
        result.findings.append(
            f"{len(wanted - result.read)} of {len(wanted)} acknowledged records were never read: {sorted(wanted - result.read)[:5]}"
        )
    for group, offset in result.committed.items():
        found = (await admin.committed_offsets(group)).get(TopicPartition("t", 0))
        if found is None or found.offset < offset:
            result.findings.append(f"group {group} committed {offset}, and has {found}")
