"""Clients of a run: each does its job again and again; what it is refused, it tries again later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tests.simulation.crowd.knowledge import AGED, KEPT, PARTITIONS, TABLE, TOPICS, Knowledge

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.types import TopicPartition

TEMPORARY: Final = ("temporary-0", "temporary-1", "temporary-2")
"""Topics that come and go."""
MAX_TIMESTAMP: Final = -3
"""ListOffsets: the record with the largest timestamp (KIP-734)."""
Job = Callable[[Knowledge, str], Awaitable[None]]


def jobs(known: Knowledge) -> list[tuple[str, Job]]:
    """Who there is, by name."""
    found: list[tuple[str, Job]] = [(f"writer-{topic}", _write(topic)) for topic in TOPICS]
    found += [("reader", _read_from_the_beginning), ("churn", _create_and_delete), ("member-1", _take_part), ("member-2", _take_part)]
    found += [("deleter", _delete_records), ("committer", _commit), ("clock", _look_up_times)]
    if "," in known.broker._properties["log.dirs"]:
        found.append(("mover", _move))
    return found


async def keep_at(known: Knowledge, name: str, job: Job) -> None:
    """The client does its job until the run is over."""
    while not known.is_over.is_set():
        try:
            await job(known, name)
        except KafkaError:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.15 * known.random(name).random())


async def make_topics(known: Knowledge) -> None:
    admin = Admin(known.client("maker"))
    await admin.create_topics([NewTopic(name, PARTITIONS, configs=configs) for name, configs in TOPICS.items()])
    await admin.close()


def _write(topic: str) -> Job:
    async def job(known: Knowledge, name: str) -> None:
        producer = Producer(known.client(name), ProducerSettings(linger_ms=1, batch_size=300, delivery_timeout_ms=20_000))
        sent = []
        for _ in range(known.random(name).randrange(5, 25)):
            index, key = known.random(name).randrange(PARTITIONS), b"%d" % known.random(name).randrange(6)
            value = b"%d" % known.random(name).getrandbits(64) + b"x" * known.random(name).randrange(60)
            sent.append((TopicPartition(topic, index), key, value, await producer.send(topic, value, key=key, partition=index)))
            if known.random(name).random() < 0.2:
                await asyncio.sleep(known.random(name).random() * 0.02)
        for partition, key, value, future in sent:
            try:
                offset = (await future).offset
            except KafkaError:
                continue
            if offset >= 0:
                known.acknowledged[partition, offset] = value
                known.newest[partition, key] = max(offset, known.newest.get((partition, key), -1))
        try:
            await producer.close()
        except KafkaError:
            return

    return job


async def _read_from_the_beginning(known: Knowledge, name: str) -> None:
    """A reader of ``kept`` finds every offset, in order, with what was acknowledged there."""
    acknowledged = dict(known.acknowledged)
    consumer = Consumer(
        known.client(name), ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest", max_partition_fetch_bytes=400))
    )
    partition = TopicPartition(KEPT, known.random(name).randrange(PARTITIONS))
    consumer.assign([partition])
    expected = 0
    for _ in range(known.random(name).randrange(3, 30)):
        for record in await consumer.poll(50):
            if record.offset != expected:
                known.findings.append(f"{partition}: offset {expected} was passed over, {record.offset} came")
            if acknowledged.get((partition, record.offset), record.value) != record.value:
                known.findings.append(f"{partition} offset {record.offset}: {record.value!r} is not what was acknowledged")
            expected = record.offset + 1
    await consumer.close()


async def _look_up_times(known: Knowledge, name: str) -> None:
    consumer = Consumer(known.client(name), ConsumerSettings())
    now_ms = known.broker.machine.clock.now_ms()
    for _ in range(5):
        partition = TopicPartition(known.random(name).choice([KEPT, TABLE, AGED]), known.random(name).randrange(PARTITIONS))
        for time_ms in (now_ms - known.random(name).randrange(5000), MAX_TIMESTAMP):
            await consumer.offsets_for_times({partition: time_ms})
        await asyncio.sleep(0.1 * known.random(name).random())
    await consumer.close()


async def _create_and_delete(known: Knowledge, name: str) -> None:
    topic = known.random(name).choice(TEMPORARY)
    admin = Admin(known.client(name))
    configs = {"cleanup.policy": known.random(name).choice(["compact", "delete"]), "min.cleanable.dirty.ratio": "0.01"}
    try:
        await admin.create_topics([NewTopic(topic, known.random(name).randrange(1, 4), configs=configs)])
        producer = Producer(known.client(name), ProducerSettings(linger_ms=0, batch_size=200, delivery_timeout_ms=5_000))
        sent = [
            await producer.send(topic, b"x" * 150, key=b"%d" % (number % 3), partition=0)
            for number in range(known.random(name).randrange(40))
        ]
        await asyncio.gather(*sent, return_exceptions=True)
        await asyncio.sleep(known.random(name).random())
        await admin.delete_topics([topic])
        try:
            await producer.close()
        except KafkaError:
            return
    finally:
        await admin.close()


async def _take_part(known: Knowledge, name: str) -> None:
    consumer = Consumer(
        known.client(name),
        ConsumerSettings(group_id="group", fetch=FetchSettings(auto_offset_reset="earliest")),
    )
    consumer.subscribe([KEPT, AGED])
    for _ in range(known.random(name).randrange(2, 20)):
        await consumer.poll(50)
    await consumer.close()


async def _commit(known: Knowledge, name: str) -> None:
    """Commits of a group without members go up, and are kept."""
    consumer = Consumer(known.client(name), ConsumerSettings(group_id="alone", enable_auto_commit=False))
    partition = TopicPartition(KEPT, 0)
    consumer.assign([partition])
    for _ in range(5):
        offset = known.committed.get(partition, 0) + 1
        await consumer.commit({partition: offset})
        known.committed[partition] = offset
    await consumer.close()


async def _delete_records(known: Knowledge, name: str) -> None:
    admin = Admin(known.client(name))
    partition = TopicPartition(AGED, known.random(name).randrange(PARTITIONS))
    try:
        broker = known.running
        found = None if broker is None else broker.partitions.find(partition.topic, partition.partition)
        if found is not None:  # a broker without room starts without it
            log = found.log
            offset = min(log.log_start_offset + 3, log.log_end_offset)
            [begins] = (await admin.delete_records({partition: offset})).values()
            if isinstance(begins, int):
                known.deleted[partition] = max(begins, known.deleted.get(partition, 0))
    finally:
        await admin.close()
    await asyncio.sleep(known.random(name).random())


async def _move(known: Knowledge, name: str) -> None:
    admin = Admin(known.client(name))
    partition = TopicPartition(known.random(name).choice([KEPT, TABLE, AGED, *TEMPORARY]), known.random(name).randrange(PARTITIONS))
    try:
        await admin.alter_replica_log_dirs(1, {partition: known.random(name).choice(["/data", "/spare"])})
    finally:
        await admin.close()
    await asyncio.sleep(known.random(name).random() * 0.5)
