"""confluent-kafka (librdkafka), unmodified, against a broker process."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.wire import RawClient, end_offsets
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
from tests.waiting import eventually

WAIT_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("confluent"), port=lasting_port()) as process:
        yield process


def record_of(message: Message) -> Record:
    partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
    assert partition is not None
    assert offset is not None
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    return Record(partition, offset, key, value)


def produce(broker: BrokerProcess, topic: str, codec: str) -> list[Record]:
    """RECORD_COUNT keyed records from one producer, which lives through a restart of the broker."""
    sent: list[Record] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        sent.append(record_of(message))

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.type": codec,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "reconnect.backoff.ms": 20,
            "linger.ms": 5,
        }
    )
    half = RECORD_COUNT // 2
    for index in range(half):
        producer.produce(topic, value_of(index), key_of(index), on_delivery=on_delivery)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    broker.stop()
    for index in range(half, RECORD_COUNT):  # these wait in the producer until the broker is back
        producer.produce(topic, value_of(index), key_of(index), on_delivery=on_delivery)
    broker.start()
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    return sent


def consume(
    broker: BrokerProcess, topic: str, group: str, is_enough: Callable[[list[Record]], bool]
) -> tuple[list[Record], dict[int, int]]:
    """A member of the group reads until it is enough, commits and leaves: what it got, and what the group has committed."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    try:
        consumer.subscribe([topic])
        got: list[Record] = []
        while not is_enough(got):
            messages = consumer.consume(500, WAIT_SECONDS_MAX)
            assert messages, "no more records came"
            for message in messages:
                assert message.error() is None, message.error()
                got.append(record_of(message))
        consumer.commit(asynchronous=False)
        committed = consumer.committed([TopicPartition(topic, index) for index in range(PARTITION_COUNT)], WAIT_SECONDS_MAX)
        return got, {entry.partition: max(entry.offset, 0) for entry in committed}
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.slow
def test_10000_records_survive_restarts_of_broker_and_consumer(broker: BrokerProcess, codec: str) -> None:
    topic = f"records-{codec}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)])[topic].result(WAIT_SECONDS_MAX)

    sent = produce(broker, topic, codec)
    assert_sent(sent)
    first, committed = consume(broker, topic, f"group-{codec}", lambda got: len(got) >= RECORD_COUNT // 3)
    broker.restart()
    rest, _ = consume(broker, topic, f"group-{codec}", lambda got: len(first) + len(got) >= RECORD_COUNT)

    assert_received(sent, first, rest, committed)
    assert_stored_as(codec, broker.data, topic)


def test_a_producer_goes_on_when_its_topic_is_created_again(broker: BrokerProcess) -> None:
    """It numbers its batches as if the topic were the earlier one; were one refused, it would be finished for good."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    outcomes: list[KafkaError | int | None] = []

    def written() -> None:
        producer.produce("again", b"v", partition=0, on_delivery=lambda error, message: outcomes.append(error or message.offset()))
        assert producer.flush(WAIT_SECONDS_MAX) == 0

    admin.create_topics([NewTopic("again", 1, 1)])["again"].result(WAIT_SECONDS_MAX)
    written()
    written()
    admin.delete_topics(["again"])["again"].result(WAIT_SECONDS_MAX)
    admin.create_topics([NewTopic("again", 1, 1)])["again"].result(WAIT_SECONDS_MAX)
    with RawClient(broker.port) as client:
        eventually(lambda: end_offsets(client, "again", 1), lambda ends: ends == [0])
    written()
    written()
    assert outcomes == [0, 1, 0, 1]
