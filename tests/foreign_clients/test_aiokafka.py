"""aiokafka, unmodified, against a broker process."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.workload import (
    CODECS,
    PARTITION_COUNT,
    RECORD_COUNT,
    Record,
    assert_received,
    assert_sent,
    assert_stored_as,
    key_of,
    value_of,
)

WAIT_MS_MAX = 30_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("aiokafka"), port=lasting_port()) as process:
        yield process


async def produce(broker: BrokerProcess, topic: str, codec: str) -> list[Record]:
    """RECORD_COUNT keyed records from one producer, which lives through a restart of the broker."""
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5, enable_idempotence=True
    )
    await producer.start()
    try:
        half = RECORD_COUNT // 2
        futures = [await producer.send(topic, value_of(index), key_of(index)) for index in range(half)]
        await producer.flush()
        await asyncio.to_thread(broker.stop)
        # One batch waits for the broker in each partition; send() would wait with the next.
        last = asyncio.gather(*[producer.send(topic, value_of(index), key_of(index)) for index in range(half, RECORD_COUNT)])
        await asyncio.to_thread(broker.start)
        futures += await last
        answers = await asyncio.gather(*futures)
    finally:
        await producer.stop()
    return [Record(answer.partition, answer.offset, key_of(index), value_of(index)) for index, answer in enumerate(answers)]


async def consume(
    broker: BrokerProcess, topic: str, group: str, is_enough: Callable[[list[Record]], bool]
) -> tuple[list[Record], dict[int, int]]:
    """A member of the group reads until it is enough, commits and leaves: what it got, and what the group has committed."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        got: list[Record] = []
        while not is_enough(got):
            batches = await consumer.getmany(timeout_ms=WAIT_MS_MAX, max_records=500)
            assert batches, "no more records came"
            got += [Record(record.partition, record.offset, record.key, record.value) for batch in batches.values() for record in batch]
        await consumer.commit()
        return got, {index: await consumer.committed(TopicPartition(topic, index)) or 0 for index in range(PARTITION_COUNT)}
    finally:
        with suppress(asyncio.CancelledError):  # aiokafka's own, of a fetch that waits to be tried again while it stops
            await consumer.stop()


async def create_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)])
    finally:
        await admin.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.slow
def test_10000_records_survive_restarts_of_broker_and_consumer(broker: BrokerProcess, codec: str) -> None:
    async def run() -> None:
        topic = f"records-{codec}"
        await create_topic(broker, topic)
        sent = await produce(broker, topic, codec)
        assert_sent(sent)
        first, committed = await consume(broker, topic, f"group-{codec}", lambda got: len(got) >= RECORD_COUNT // 3)
        await asyncio.to_thread(broker.restart)
        rest, _ = await consume(broker, topic, f"group-{codec}", lambda got: len(first) + len(got) >= RECORD_COUNT)

        assert_received(sent, first, rest, committed)
        assert_stored_as(codec, broker.data, topic)

    asyncio.run(run())
