"""librdkafka, kafka-python and aiokafka, unmodified, while the leader of what they write and read goes away and comes back.

The other leader has the broker's own address: whoever believes a hint (KIP-951) or the metadata comes back, and is refused until the broker
leads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from tests.broker.leaders import NOBODY, OTHER, add_other, give

from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic

MOVES = 3
WAIT_SECONDS_MAX = 60
Move = Callable[[int], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "group.initial.rebalance.delay.ms": "0"}
    with BrokerThread(properties) as thread:
        with Admin(thread.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 1)]) == {"t": None}
        run(thread, add_other(as_simulated(thread), address=thread.addresses["PLAINTEXT"]))
        yield thread


def as_simulated(thread: BrokerThread) -> Any:
    return SimpleNamespace(broker=thread._broker)


def run(thread: BrokerThread, coroutine: Coroutine[Any, Any, Any]) -> Any:
    assert thread._loop is not None
    return asyncio.run_coroutine_threadsafe(coroutine, thread._loop).result(WAIT_SECONDS_MAX)


def mover(thread: BrokerThread) -> Move:
    """Gives the topic to a leader."""
    return lambda leader: run(thread, give(as_simulated(thread), leader))


def leaders() -> list[int]:
    """Who leads, move by move; this broker in between."""
    return [OTHER, NOBODY] * MOVES


def test_librdkafka_goes_on(broker: BrokerThread) -> None:
    move = mover(broker)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    delivered: list[Any] = []
    read: list[bytes | str | None] = []
    for number, leader in enumerate(leaders()):
        producer.produce("t", b"%d" % (2 * number), on_delivery=lambda error, message: delivered.append(error or message.offset()))
        move(leader)
        producer.produce("t", b"%d" % (2 * number + 1), on_delivery=lambda error, message: delivered.append(error or message.offset()))
        consumer.poll(0.05)
        move(1)
        assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert delivered == list(range(4 * MOVES))
    consumer.seek(confluent_kafka.TopicPartition("t", 0, 0))
    while len(read) < 4 * MOVES:
        message = consumer.poll(WAIT_SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        read.append(message.value())
    assert read == [b"%d" % number for number in range(4 * MOVES)]
    consumer.close()


def test_kafka_python_goes_on(broker: BrokerThread) -> None:
    move = mover(broker)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=True)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_SECONDS_MAX * 1000
    )
    consumer.assign([kafka.TopicPartition("t", 0)])
    read: list[bytes] = []
    for number, leader in enumerate(leaders()):
        first = producer.send("t", b"%d" % (2 * number))
        move(leader)
        second = producer.send("t", b"%d" % (2 * number + 1))
        move(1)
        assert [sent.get(WAIT_SECONDS_MAX).offset for sent in (first, second)] == [2 * number, 2 * number + 1]
        read += [next(consumer).value for _ in range(2)]
    assert read == [b"%d" % number for number in range(4 * MOVES)]
    producer.close()
    consumer.close()


def test_aiokafka_goes_on(broker: BrokerThread) -> None:
    move = mover(broker)

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        consumer = aiokafka.AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await producer.start()
        await consumer.start()
        read: list[bytes] = []
        for number, leader in enumerate(leaders()):
            first = await producer.send("t", b"%d" % (2 * number))
            await asyncio.to_thread(move, leader)
            second = await producer.send("t", b"%d" % (2 * number + 1))
            await asyncio.to_thread(move, 1)
            assert [(await sent).offset for sent in (first, second)] == [2 * number, 2 * number + 1]
            read += [(await asyncio.wait_for(consumer.getone(), WAIT_SECONDS_MAX)).value for _ in range(2)]
        assert read == [b"%d" % number for number in range(4 * MOVES)]
        await producer.stop()
        await consumer.stop()

    asyncio.run(main())
