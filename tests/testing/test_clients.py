"""Each client that the module is for: watched, against a broker of the module, through a lost answer and a refused request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest

from ottla import aio, sync
from ottla.testing import History, ThreadNodes, broker

COUNT = 30
EXPECTED = [f"value {number}".encode() for number in range(COUNT)]


@pytest.fixture(scope="module")
def served() -> Iterator[ThreadNodes]:
    with broker() as made:
        yield made


@pytest.fixture
def topic(served: ThreadNodes) -> Iterator[str]:
    """Its first records meet faults."""
    made = served.topic("t")
    lost, refused = served.faults.lost("Produce"), served.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    yield made
    assert (lost.happened, refused.happened) == (1, 1)
    served.faults.clear()


@pytest.fixture
def judged(served: ThreadNodes) -> Iterator[History]:
    made = History(served.bootstrap)
    yield made
    made.check()
    assert made.judge().counts["send"] == COUNT
    assert made.judge().record_count >= 2 * COUNT  # by the consumer, and at the end


def test_confluent_kafka(served: ThreadNodes, topic: str, judged: History) -> None:
    producer = judged.watch(confluent_kafka.Producer({"bootstrap.servers": served.bootstrap, "enable.idempotence": True}))
    landed: list[int | None] = []
    for number, value in enumerate(EXPECTED):
        producer.produce(topic, value, f"key {number}", on_delivery=lambda error, message: landed.append(message.offset()))
        producer.flush()
    assert landed == list(range(COUNT))
    settings = {"bootstrap.servers": served.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = judged.watch(confluent_kafka.Consumer(settings))
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < COUNT // 2:
        message = consumer.poll(10)
        found += [] if message is None else [message.value()]
    while len(found) < COUNT:
        found += [message.value() for message in consumer.consume(COUNT - len(found), 10)]
    consumer.close()
    assert found == EXPECTED


def test_kafka_python(served: ThreadNodes, topic: str, judged: History) -> None:
    producer = judged.watch(kafka.KafkaProducer(bootstrap_servers=served.bootstrap))
    for value in EXPECTED:
        producer.send(topic, value=value).get(30)
    producer.close()
    consumer = judged.watch(
        kafka.KafkaConsumer(topic, bootstrap_servers=served.bootstrap, group_id=topic, auto_offset_reset="earliest")
    )  # fmt: skip
    found = [next(consumer).value]
    while len(found) < COUNT:
        found += [record.value for records in consumer.poll(10_000).values() for record in records]
    consumer.close()
    assert found == EXPECTED


def test_aiokafka(served: ThreadNodes, topic: str, judged: History) -> None:
    async def body() -> None:
        async with judged.watch(aiokafka.AIOKafkaProducer(bootstrap_servers=served.bootstrap, enable_idempotence=True)) as producer:
            await (await producer.send(topic, EXPECTED[0]))
            for value in EXPECTED[1:]:
                await producer.send_and_wait(topic, value)
        client = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=served.bootstrap, group_id=topic, auto_offset_reset="earliest")
        async with judged.watch(client) as consumer:
            found = [(await consumer.getone()).value]
            async for record in consumer:
                found.append(record.value)
                if len(found) == COUNT // 2:
                    break
            while len(found) < COUNT:
                found += [record.value for records in (await consumer.getmany(timeout_ms=10_000)).values() for record in records]
        assert found == EXPECTED

    asyncio.run(body())


def test_ottla_aio(served: ThreadNodes, topic: str, judged: History) -> None:
    async def body() -> None:
        async with judged.watch(aio.Producer(served.bootstrap)) as producer:
            await (await producer.send(topic, EXPECTED[0]))
            for value in EXPECTED[1:]:
                await producer.send_and_wait(topic, value)
        async with judged.watch(aio.Consumer(served.bootstrap, group_id=topic, auto_offset_reset="earliest")) as consumer:
            consumer.subscribe([topic])
            found: list[bytes | None] = []
            async for record in consumer:
                found.append(record.value)
                if len(found) == COUNT // 2:
                    break
            while len(found) < COUNT:
                found += [record.value for record in await consumer.poll(10_000)]
        assert found == EXPECTED

    asyncio.run(body())


def test_ottla_sync(served: ThreadNodes, topic: str, judged: History) -> None:
    with judged.watch(sync.Producer(served.bootstrap)) as producer:
        for value in EXPECTED:
            producer.send(topic, value).result()
    with judged.watch(sync.Consumer(served.bootstrap, group_id=topic, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < COUNT:
            found += [record.value for record in consumer.poll(10_000)]
    assert found == EXPECTED
