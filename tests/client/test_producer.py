"""The producer against a simulated broker: batching, retries, sequences."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import KEY, with_broker

from ottla.client.buffer import ConsumerRecord
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker
from ottla.types import TopicPartition


async def read(broker: SimBroker, count: int, name: str = "reader", partitions: int = 1) -> list[ConsumerRecord]:
    """The first records of the topic, read without a group (mechanism 57)."""
    consumer = Consumer(broker.client(name), ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest")))
    consumer.assign([TopicPartition("t", index) for index in range(partitions)])
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += await consumer.poll(1000)
    await consumer.close()
    return records


def test_mechanism_16_send_returns_before_the_acknowledgement_and_batches_gather() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=50, batch_size=1 << 20))
        first = await producer.send("t", b"0")
        waiting = [first, *[await producer.send("t", b"%d" % number) for number in range(1, 100)]]
        assert not any(future.done() for future in waiting)
        await producer.flush()
        assert [future.result().offset for future in waiting] == list(range(100))
        assert broker.broker is not None
        log = broker.broker.partitions.by_name["t"][0].log
        assert log.producers is not None
        await producer.close()
        records = await read(broker, 100)
        assert [record.value for record in records] == [b"%d" % number for number in range(100)]

    with_broker(body)


@pytest.mark.slow
def test_order_and_single_storage_survive_broken_connections() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0, batch_size=64))
        waiting = []
        for number in range(300):
            waiting.append(await producer.send("t", b"%d" % number))
            if number % 40 == 20:
                broker.machine._fabric.break_connections("broker")
            await asyncio.sleep(0.001)
        await producer.flush()
        assert [future.result().offset for future in waiting] == list(range(300))
        await producer.close()
        assert [record.value for record in await read(broker, 300)] == [b"%d" % number for number in range(300)]

    for seed in range(20):
        with_broker(body, seed)


def test_a_record_larger_than_the_broker_takes_fails_alone() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0, max_request_size=8 << 20))
        small, large, last = [await producer.send("t", value) for value in (b"a", bytes(2 << 20), b"b")]
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await large
        await producer.flush()
        assert small.result().offset == 0
        assert last.result().offset == 1
        with pytest.raises(KafkaError, match=r"max_request_size"):
            await producer.send("t", bytes(9 << 20))
        await producer.close()

    with_broker(body)


def test_a_topic_that_cannot_be_fails_at_once() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(max_block_ms=5000))
        with pytest.raises(KafkaError) as caught:
            await producer.send("not/legal", b"x")
        assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
        await producer.close()

    with_broker(body)


def test_a_silent_network_is_given_up_at_the_delivery_timeout() -> None:
    async def body(broker: SimBroker) -> None:
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0, delivery_timeout_ms=3000))
        assert (await (await producer.send("t", b"x"))).offset == 0
        broker.kill(power_cut=False)
        lost = await producer.send("t", b"y")
        with pytest.raises(KafkaError, match=r"delivery_timeout_ms expired"):
            await lost
        await producer.close()

    with_broker(body)


def test_a_member_that_dies_leaves_its_partitions_to_the_others() -> None:
    async def body(broker: SimBroker) -> None:
        strategy = ("cooperative-sticky",)
        membership = MembershipSettings(session_timeout_ms=6000, heartbeat_interval_ms=500, partition_assignment_strategy=strategy)
        settings = ConsumerSettings(group_id="g", fetch=FetchSettings(auto_offset_reset="earliest"), membership=membership)
        producer = Producer(broker.client("p"), ProducerSettings(linger_ms=0))
        await (await producer.send("t", b"x"))
        members = [Consumer(broker.client(f"c{number}"), settings) for number in range(2)]
        for member in members:
            member.subscribe(["t"])
        for _ in range(20):
            await asyncio.gather(*(member.poll(200) for member in members))
        owners = [member for member in members if member.assignment() == [KEY]]
        assert len(owners) == 1
        survivor = next(member for member in members if member is not owners[0])
        for _ in range(200):  # the owner polls no more, and a dead process sends no heartbeats
            if survivor.assignment():
                break
            owners[0]._membership._heartbeats.cancel()  # type: ignore[union-attr]
            await survivor.poll(200)
        assert survivor.assignment() == [KEY]
        await survivor.close()
        await producer.close()

    with_broker(body)
