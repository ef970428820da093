"""kafka-python, unmodified, against a broker process."""

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
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
    with BrokerProcess(tmp_path_factory.mktemp("kafka-python"), port=lasting_port()) as process:
        yield process


def produce(broker: BrokerProcess, topic: str, codec: str) -> list[Record]:
    """RECORD_COUNT keyed records from one producer, which lives through a restart of the broker."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5, reconnect_backoff_ms=20
    )
    try:
        half = RECORD_COUNT // 2
        futures = [producer.send(topic, value_of(index), key_of(index)) for index in range(half)]
        producer.flush(WAIT_MS_MAX / 1000)
        broker.stop()
        futures += [producer.send(topic, value_of(index), key_of(index)) for index in range(half, RECORD_COUNT)]
        broker.start()
        producer.flush(WAIT_MS_MAX / 1000)
        answers = [future.get(WAIT_MS_MAX / 1000) for future in futures]
    finally:
        producer.close(WAIT_MS_MAX / 1000)
    return [Record(answer.partition, answer.offset, key_of(index), value_of(index)) for index, answer in enumerate(answers)]


def consume(
    broker: BrokerProcess, topic: str, group: str, is_enough: Callable[[list[Record]], bool]
) -> tuple[list[Record], dict[int, int]]:
    """A member of the group reads until it is enough, commits and leaves: what it got, and what the group has committed."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    try:
        got: list[Record] = []
        while not is_enough(got):
            batches = consumer.poll(WAIT_MS_MAX, max_records=500)
            assert batches, "no more records came"
            got += [Record(record.partition, record.offset, record.key, record.value) for batch in batches.values() for record in batch]
        consumer.commit()
        committed = {index: consumer.committed(TopicPartition(topic, index)) or 0 for index in range(PARTITION_COUNT)}
        return got, committed
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.slow
def test_10000_records_survive_restarts_of_broker_and_consumer(broker: BrokerProcess, codec: str) -> None:
    topic = f"records-{codec}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)])
    finally:
        admin.close()

    sent = produce(broker, topic, codec)
    assert_sent(sent)
    first, committed = consume(broker, topic, f"group-{codec}", lambda got: len(got) >= RECORD_COUNT // 3)
    broker.restart()
    rest, _ = consume(broker, topic, f"group-{codec}", lambda got: len(first) + len(got) >= RECORD_COUNT)

    assert_received(sent, first, rest, committed)
    assert_stored_as(codec, broker.data, topic)
