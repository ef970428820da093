"""What a writing task does, without Spark."""

import random
import warnings
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import Topics

from ottla.client.partitioner import partition_for_key
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.delivery import Delivery
from ottla.spark.link import link_for
from ottla.spark.offsets import LATEST
from ottla.spark.row_slice import RowSlice
from ottla.spark.rows import check_columns, write_rows
from ottla.spark.source import OttlaDataSource
from ottla.sync import Admin, Consumer
from ottla.types import TopicPartition


def stored(topics: Topics, topic: str, partition_count: int = 1, isolation_level: Any = "read_uncommitted"):
    """All records of the topic, by partition, as this level sees them; once every transaction has ended, with read_committed."""
    found: dict = {index: [] for index in range(partition_count)}
    partitions = [TopicPartition(topic, index) for index in found]
    with Admin(topics.bootstrap) as admin:
        ends = {partition: end for partition, (end, _, _) in admin.offsets_for_times(dict.fromkeys(partitions, LATEST)).items()}
    with Consumer(topics.bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level) as consumer:
        consumer.assign(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(100):
                found[record.partition].append(record)
    return found


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def options(topics: Topics, **more: str):
    return {"kafka.bootstrap.servers": topics.bootstrap} | more


def test_keys_go_where_murmur2_says_and_keep_their_order(topics: Topics):
    topic = topics.create(3)
    keys = [f"key-{index % 50}" for index in range(2_000)]
    values = [b"%d" % index for index in range(2_000)]
    small = {"kafka.batch.size": "500"}  # many batches, so that order is not that of one
    assert write_rows(iter([batch(key=keys, value=values)]), options(topics, topic=topic, **small)) == 2_000
    found = stored(topics, topic, 3)
    for partition, records in found.items():
        assert [record.value for record in records] == [
            value for key, value in zip(keys, values, strict=True) if partition_for_key(key.encode(), 3) == partition
        ]
    assert all(records for records in found.values())


def test_rows_name_their_topic_partition_and_headers(topics: Topics):
    one, other = topics.create(2), topics.create(2)
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], None])
    rows = batch(topic=[one, other, one], partition=pa.array([1, 0, None], pa.int32()), value=["1", "2", None], headers=headers)
    assert write_rows(iter([rows]), options(topics)) == 3
    records = [record for topic in (one, other) for found in stored(topics, topic, 2).values() for record in found]
    assert sorted((r.topic, r.value or b"") for r in records) == sorted([(one, b""), (one, b"1"), (other, b"2")])
    first = next(record for record in records if record.value == b"1")
    assert (first.partition, first.key, first.headers) == (1, None, (("a", b"1"), ("b", None)))


@pytest.mark.parametrize("batch_bytes", ["1", "300", "100000"])
def test_rows_of_every_kind_keep_their_order_in_each_partition(topics: Topics, batch_bytes: str):
    names = [topics.create(2), topics.create(3)]
    count = 300
    wanted = [None if index % 3 else index % 2 for index in range(count)]
    keys = [None if index % 4 == 1 else b"%d" % (index % 11) for index in range(count)]
    rows = batch(
        topic=[names[index // 7 % 2] for index in range(count)],
        partition=pa.array(wanted, pa.int32()),
        key=pa.array(keys, pa.binary()),
        value=[b"%d" % index for index in range(count)],
    )
    settings = options(topics, **{"kafka.batch.size": batch_bytes})
    assert write_rows(iter([rows.slice(0, 100), rows.slice(100), rows.slice(0, 0)]), settings) == count
    seen = []
    for number, topic in enumerate(names):
        for partition, records in stored(topics, topic, 2 + number).items():
            values = [int(record.value or b"") for record in records]
            assert values == sorted(values)
            seen += values
            for index, record in zip(values, records, strict=True):
                assert (names[index // 7 % 2], keys[index]) == (topic, record.key)
                if wanted[index] is not None:
                    assert partition == wanted[index]
                elif record.key is not None:
                    assert partition == partition_for_key(record.key, 2 + number)
    assert sorted(seen) == list(range(count))


def test_rows_without_a_key_are_spread_in_batches(topics: Topics):
    topic = topics.create(4)
    rows = batch(value=[bytes(100)] * 4_000)
    write_rows(iter([rows]), options(topics, topic=topic, **{"kafka.batch.size": "2000"}))
    counts = [len(records) for records in stored(topics, topic, 4).values()]
    assert sum(counts) == 4_000
    assert min(counts) > 200  # each has its turn some 50 times; that one has fewer than 10 will not be seen


def test_the_option_topic_takes_precedence_over_the_column(topics: Topics):
    topic = topics.create()
    write_rows(iter([batch(topic=["elsewhere"], value=["v"])]), options(topics, topic=topic))
    assert len(stored(topics, topic)[0]) == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written(topics: Topics, codec: str):
    topic = topics.create()
    values = [bytes([index % 7]) * 300 for index in range(500)]
    write_rows(iter([batch(value=values)]), options(topics, topic=topic, **{"kafka.compression.type": codec}))
    assert [record.value for record in stored(topics, topic)[0]] == values


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"topic": [None], "value": ["v"]}, "no topic"),
        (
            {"value": ["v"], "topic": ["T"], "partition": pa.array([9], pa.int32())},
            r"9; topic 'topic-\d+' has 1 partition: leave .* out .*, or give .* \(ottla topic add-partitions topic-\d+ -p 10\)$",
        ),
        ({"value": ["v"], "topic": ["T"], "partition": pa.array([-1], pa.int32())}, "partition -1; .*, and keys place the rows$"),
    ],
)
def test_a_row_that_has_no_place_is_an_error(topics: Topics, columns: dict, word: str):
    topic = topics.create()
    columns = {name: [topic] if value == ["T"] else value for name, value in columns.items()}
    with pytest.raises(KafkaError, match=word):
        write_rows(iter([batch(**columns)]), options(topics))


def test_a_topic_that_brokers_do_not_create_has_its_way_out(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ottla.spark.delivery.CREATE_TIMEOUT_MS", 100)
    with pytest.raises(KafkaError, match=r"topic 'no-such-letters' does not exist, and the brokers do not .* ottla topic create") as raised:
        write_rows(iter([batch(value=["v"])]), options(topics, topic="no-such-letters"))
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_record_that_the_broker_refuses_fails_the_task(topics: Topics):
    topic = topics.create(1, None, **{"max.message.bytes": "1000"})
    with pytest.raises(KafkaError) as raised:
        write_rows(iter([batch(value=[bytes(5_000)])]), options(topics, topic=topic))
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "ottla config set max.message.bytes=BYTES --topic TOPIC" in str(raised.value)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_topic_that_takes_only_small_batches_has_its_rows_in_order(topics: Topics, codec: str):
    topic = topics.create(2, None, **{"max.message.bytes": "5000"})
    source = random.Random(1)
    values = [b"%08d" % index + source.randbytes(400) for index in range(2_000)]
    rows = batch(value=values, partition=pa.array([index % 2 for index in range(2_000)], pa.int32()))
    assert write_rows(iter([rows]), options(topics, topic=topic, **{"kafka.compression.type": codec})) == 2_000
    for partition, records in stored(topics, topic, 2).items():
        assert [record.value for record in records] == values[partition::2]


class CountingDelivery(Delivery):
    """Notes how many requests a broker has refused."""

    refused = 0

    async def _produce(self, target, batch):
        try:
            await super()._produce(target, batch)
        except KafkaError:
            self.refused += 1
            raise


def test_batches_after_a_refused_one_are_as_small_as_the_topic_wants(topics: Topics):
    topic = topics.create(1, None, **{"max.message.bytes": "5000"})
    settings = options(topics, topic=topic)
    delivery = CountingDelivery(link_for(settings), settings)
    assert delivery.partition_counts([topic]) == [1]
    refused = []
    for _ in range(2):
        delivery.add(RowSlice(TopicPartition(topic, 0), [None] * 100, [bytes(400)] * 100, None, 0, 100, 0))
        delivery.flush()
        refused.append(delivery.refused)
    assert refused[0] > 0
    assert refused[1] == refused[0]
    assert len(stored(topics, topic)[0]) == 200


def test_what_open_batches_of_all_partitions_hold_is_bounded(topics: Topics):
    topic = topics.create(40)
    settings = options(topics, topic=topic, **{"kafka.buffer.memory": "20000"})
    delivery = Delivery(link_for(settings), settings)
    for number in range(200):
        delivery.add(RowSlice(TopicPartition(topic, number % 40), [None], [b"%03d" % number + bytes(997)], None, 0, 1, 0))
        open_bytes = sum(builder.size_bytes for builder in delivery._builders.values())
        assert delivery._open_bytes == open_bytes <= 20_000
    delivery.flush()
    assert delivery._open_bytes == 0
    for partition, records in stored(topics, topic, 40).items():
        assert [int((record.value or b"")[:3]) for record in records] == list(range(partition, 200, 40))


def test_partitions_that_are_new_are_written_to_when_the_metadata_is_old(topics: Topics):
    topic = topics.create()
    rows = batch(key=[b"%d" % index for index in range(50)], value=[b"v"] * 50)
    aged = options(topics, topic=topic, **{"kafka.metadata.max.age.ms": "0"})
    write_rows(iter([rows]), aged)
    with Admin(topics.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    write_rows(iter([rows]), aged)
    counts = [len(records) for records in stored(topics, topic, 3).values()]
    assert sum(counts) == 100
    assert min(counts[1:]) > 0


def test_a_row_that_names_a_new_partition_is_written(topics: Topics):
    topic = topics.create()
    settings = options(topics, topic=topic)
    write_rows(iter([batch(value=[b"v"])]), settings)
    with Admin(topics.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    write_rows(iter([batch(value=[b"w"], partition=pa.array([2], pa.int32()))]), settings)
    assert [record.value for record in stored(topics, topic, 3)[2]] == [b"w"]


class FailingDelivery(Delivery):
    """The first try of the first batch meets a broker that does not lead the partition; what arrives is noted."""

    async def _produce(self, target, batch):
        self.tries = getattr(self, "tries", 0) + 1
        if self.tries == 1:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not yet")
        await super()._produce(target, batch)


def test_a_batch_that_is_sent_again_keeps_its_place(topics: Topics):
    topic = topics.create()
    settings = options(topics, topic=topic, **{"kafka.batch.size": "100"})
    delivery = FailingDelivery(link_for(settings), settings)
    assert delivery.partition_counts([topic]) == [1]
    for number in range(50):
        delivery.add(RowSlice(TopicPartition(topic, 0), [None], [b"%050d" % number], None, 0, 1, 0))
    delivery.flush()
    assert delivery.tries > 10
    assert [int(record.value) for record in stored(topics, topic)[0]] == list(range(50))


def schema_of(**kinds):
    from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

    types = {
        "string": StringType(),
        "binary": BinaryType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    }
    return StructType([StructField(name, types[kind]) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("columns", "settings", "word"),
    [
        ({"key": "string"}, {"topic": "t"}, r"no column value among key: .*alias\('value'\)"),
        ({"value": "bigint"}, {"topic": "t"}, r"column value is bigint; .*\.withColumn\('value', F\.col\('value'\)\.cast\('string'\)\)"),
        ({"value": "string"}, {}, "no topic"),
        ({"value": "string", "partition": "bigint"}, {"topic": "t"}, "column partition is bigint"),
        ({"value": "string", "headers": "string"}, {"topic": "t"}, "column headers is string"),
        ({"value": "string", "timestamp": "bigint"}, {"topic": "t"}, "column timestamp is bigint; it must be timestamp"),
        ({"value": "string"}, {"topic": "t", "kafka.acks": "1"}, r"kafka\.acks=1"),
        ({"value": "string"}, {"topic": "t", "kafka.enable.idempotence": "false"}, "idempotent"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_before_a_task_starts(columns, settings, word):
    with pytest.raises(KafkaError, match=word):
        check_columns(schema_of(**columns), settings)


def test_rows_of_a_record_are_taken():
    everything = {"key": "binary", "value": "string", "topic": "string", "partition": "int", "headers": "headers", "timestamp": "timestamp"}
    for settings in ({}, {"includeHeaders": "true"}):
        check_columns(schema_of(**everything), settings)


def test_columns_that_a_record_does_not_have_are_ignored_with_one_warning():
    schema = schema_of(value="string", one_more="bigint", and_another="string")
    with pytest.warns(UserWarning, match="columns one_more, and_another are not written"):
        check_columns(schema, {"topic": "t"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_columns(schema, {"topic": "t"})


US = pa.timestamp("us", "UTC")


def test_a_column_timestamp_is_the_time_of_the_record_and_now_where_it_has_none(topics: Topics):
    topic = topics.create(2)
    times = [1_700_000_000_123_456, 5_999, None, 0, -1_000] * 20  # -1 ms is that of a record without a time, of which a copy failed
    rows = batch(value=[b"%d" % index for index in range(100)], timestamp=pa.array(times, US), partition=pa.array([0, 1] * 50, pa.int32()))
    assert write_rows(iter([rows]), options(topics, topic=topic)) == 100
    for partition, records in stored(topics, topic, 2).items():
        assert [int(record.value) for record in records] == list(range(partition, 100, 2))
        for record in records:
            time_us = times[int(record.value)]
            assert record.timestamp_ms > 1_700_000_000_123 if time_us in (None, -1_000) else record.timestamp_ms == time_us // 1000


HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"headers": pa.array([None, [], [{"key": "a", "value": b""}, {"key": None, "value": b""}]], HEADER)}, "row 5 .* column headers"),
        ({"headers": pa.array([None, [None], []], HEADER)}, "row 4 .* column headers"),
        ({"timestamp": pa.array([None, 1, -1], US)}, "row 5 .* column timestamp is -1 ms"),
        ({"timestamp": pa.array([-1_000, -1_001, 1], US)}, "row 4 .* column timestamp is -2 ms"),
    ],
)
def test_a_row_that_no_record_can_have_is_named_with_its_column(topics: Topics, columns: dict, word: str):
    topic = topics.create()
    with pytest.raises(KafkaError, match=word):
        write_rows(iter([batch(value=["v"] * 3), batch(value=["v"] * 3, **columns)]), options(topics, topic=topic))


def test_a_mode_that_cannot_be_names_the_way_out():
    topic = OttlaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    with pytest.raises(KafkaError, match=r'use mode\("append"\)'):
        topic.writer(schema_of(value="string"), True)
    with pytest.raises(KafkaError, match=r'outputMode\("complete"\) .* use to_topic'):
        topic.streamWriter(schema_of(value="string"), True)
