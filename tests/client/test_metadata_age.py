"""Metadata ages: what it says of topics is asked again after metadata.max.age.ms, and of those in use only."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.messages.metadata import MetadataRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference

AGE_MS = 10_000


def test_a_producer_uses_partitions_that_were_added_after_metadata_max_age() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = Producer(broker.client("p", metadata_max_age_ms=AGE_MS), ProducerSettings(linger_ms=0, batch_size=1))
        assert (await producer.send_and_wait("t", b"x")).partition == 0
        admin = Admin(broker.client("a"))
        await admin.create_partitions({"t": 4})
        await admin.close()
        await asyncio.sleep(AGE_MS / 1000 + 0.1)
        landed = [await producer.send_and_wait("t", b"x", key=b"%d" % number) for number in range(40)]
        assert {found.partition for found in landed} == {0, 1, 2, 3}
        await producer.close()

    with_broker(body)


def test_a_partition_that_was_just_added_is_found_when_it_is_named() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0))
        await producer.send_and_wait("t", b"x")
        admin = Admin(broker.client("a"))
        await admin.create_partitions({"t": 2})
        await admin.close()
        assert (await producer.send_and_wait("t", b"x", partition=1)).partition == 1
        with pytest.raises(KafkaError, match=r"topic 't' has no partition 2; it has 2$"):
            await producer.send("t", b"x", partition=2)
        await producer.close()

    with_broker(body)


def test_a_topic_without_records_is_forgotten_and_found_again_when_it_is_wanted() -> None:
    async def body(broker: SimBroker) -> None:
        cluster = broker.client("p", metadata_max_age_ms=AGE_MS)
        network = Interference(cluster)
        producer = Producer(cluster, ProducerSettings(linger_ms=0, metadata_max_idle_ms=2 * AGE_MS))
        await producer.send_and_wait("idle", b"x")
        for _ in range(5):
            await producer.send_and_wait("busy", b"x")
            await asyncio.sleep(AGE_MS / 1000 + 0.1)
        last = network.of(MetadataRequest)[-1]
        assert [topic.name for topic in last.topics] == ["busy"]
        assert (await producer.send_and_wait("idle", b"y")).offset == 1, "under the next number of its sequence"
        await producer.close()

    with_broker(body)


def test_a_topic_that_was_deleted_is_not_created_again_when_others_are_wanted() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p", metadata_max_age_ms=AGE_MS), ProducerSettings(linger_ms=0))
        await producer.send_and_wait("deleted", b"x")
        admin = Admin(broker.client("a"))
        assert await admin.delete_topics(["deleted"]) == {"deleted": None}
        await producer.send_and_wait("new", b"x")
        await asyncio.sleep(3 * AGE_MS / 1000)
        assert set(await admin.list_topics()) == {"new"}
        await admin.close()
        await producer.close()

    with_broker(body)


def test_a_pattern_never_creates_a_deleted_topic_again() -> None:
    async def body(broker: SimBroker) -> None:
        for name in ("a-1", "a-2"):
            await create(broker, name)
            await fill(broker, 1, topic=name)
        consumer = consumer_of(broker.client("c", metadata_max_age_ms=AGE_MS), group_id="g", heartbeat_interval_ms=500)
        consumer.subscribe(pattern="a-.*")
        assert {record.topic for record in await take(consumer, 2)} == {"a-1", "a-2"}
        admin = Admin(broker.client("a"))
        assert await admin.delete_topics(["a-1"]) == {"a-1": None}
        for _ in range(8):
            await consumer.poll(AGE_MS // 2)
        assert set(await admin.list_topics()) == {"a-2", "__consumer_offsets"}
        assert [partition.topic for partition in consumer.assignment()] == ["a-2"]
        await create(broker, "a-3")
        await fill(broker, 1, topic="a-3")
        assert [record.topic for record in await take(consumer, 1)] == ["a-3"]
        await admin.close()
        await consumer.close()

    with_broker(body)
