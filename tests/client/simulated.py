"""Clients on the simulated network: what the tests of this directory share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.client.admin import Admin, NewTopic
from ottla.client.buffer import ConsumerRecord
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.membership_settings import MembershipSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.types import TopicPartition

KEY = TopicPartition("t", 0)


def with_broker(body: Callable[[SimBroker], Awaitable[None]], seed: int = 1, **properties: str) -> None:
    """``body`` runs beside a broker that has just started; dots of a property are underscores here."""

    async def main() -> None:
        broker = SimBroker(Simulation(seed), {key.replace("_", "."): value for key, value in properties.items()})
        await broker.start()
        await body(broker)

    run(main())


async def create(broker: SimBroker, name: str = "t", partition_count: int = 1, *, configs: dict[str, str] | None = None) -> None:
    admin = Admin(broker.client("creator"))
    assert await admin.create_topics([NewTopic(name, partition_count, configs=configs)]) == {name: None}
    await admin.close()


async def fill(broker: SimBroker, count: int, *, topic: str = "t", partition: int = 0, first: int = 0) -> None:
    """Records numbered from ``first`` are stored."""
    producer = Producer(broker.client("filler"), ProducerSettings())
    for number in range(first, first + count):
        await producer.send(topic, b"%d" % number, partition=partition)
    await producer.close()


def consumer_of(cluster: Cluster, *, group_id: str | None = None, **settings: Any) -> Consumer:
    """from the start, unless a setting says otherwise; any setting of the three groups of settings."""
    values = {"auto_offset_reset": "earliest"} | settings
    fetch = {key: values.pop(key) for key in list(values) if key in FetchSettings.__dataclass_fields__}
    membership = {key: values.pop(key) for key in list(values) if key in MembershipSettings.__dataclass_fields__}
    return Consumer(
        cluster, ConsumerSettings(group_id=group_id, fetch=FetchSettings(**fetch), membership=MembershipSettings(**membership), **values)
    )


async def take(consumer: Consumer, count: int, **limits: int) -> list[ConsumerRecord]:
    """The next records; at least ``count``, unless ``max_records`` says otherwise."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += await consumer.poll(1000, **limits)
    return records


async def stored(broker: SimBroker, count: int, partition: TopicPartition = KEY) -> list[bytes | None]:
    """The values of the first ``count`` records of the partition."""
    consumer = consumer_of(broker.client("reader"))
    consumer.assign([partition])
    records = await take(consumer, count)
    await consumer.close()
    return [record.value for record in records]


async def end_of(broker: SimBroker, partition: TopicPartition = KEY) -> int:
    """The end of the partition's log."""
    consumer = consumer_of(broker.client("end"))
    ends = await consumer.end_offsets([partition])
    await consumer.close()
    return ends[partition]


def error_of(future: asyncio.Future[Any]) -> KafkaError:
    """Why the record was not delivered."""
    error = future.exception()
    assert isinstance(error, KafkaError)
    return error


def produce_answer(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """The answer that refuses all that the request holds."""
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name, topic.topic_id, [PartitionProduceResponse(part.index, code, -1) for part in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )
