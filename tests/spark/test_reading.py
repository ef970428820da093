"""What a task does, without Spark: against a broker, or on responses made by hand."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.conftest import Topics

from ottla.client.cluster_metadata import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import AbortedTransaction, PartitionData
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker
from ottla.spark import batch_reader
from ottla.spark.link import link_for
from ottla.spark.planning import OffsetRange, OffsetRanges
from ottla.spark.reading import DataLossError, RangeFetcher, _Answer, read_ranges
from ottla.spark.rows import write_rows
from ottla.sync import Admin, Consumer
from ottla.types import TopicPartition

SCHEMA = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def read(options, *ranges):
    batches = list(
        read_ranges(OffsetRanges(tuple(OffsetRange(TopicPartition(*target), *bounds) for *target, bounds in ranges)), options, SCHEMA)
    )
    return [row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in SCHEMA.names), strict=True)]


def test_a_task_reads_its_ranges_and_nothing_else(topics: Topics):
    topic = topics.create(2)
    topics.produce(topic, [(None, b"%d" % index) for index in range(100)], partition=0)
    topics.produce(topic, [(None, b"x")] * 10, partition=1)
    rows = read(topics.options(topic), (topic, 0, (20, 30)), (topic, 1, (0, 10)), (topic, 0, (90, 100)))
    assert sorted(rows, key=lambda row: row[2:]) == [
        *((b"%d" % offset, topic, 0, offset) for offset in [*range(20, 30), *range(90, 100)]),
        *((b"x", topic, 1, offset) for offset in range(10)),
    ]


def test_a_range_may_begin_and_end_inside_a_batch(topics: Topics):
    topic = topics.create()
    write_rows(iter([pa.RecordBatch.from_pydict({"value": [b"%d" % index for index in range(100)]})]), topics.sink_options(topic))
    assert [row[3] for row in read(topics.options(topic), (topic, 0, (20, 30)))] == list(range(20, 30))


def test_records_larger_than_a_response_may_be_come_all_the_same(topics: Topics):
    topic = topics.create()
    values = [bytes([index]) * 50_000 for index in range(20)]
    topics.produce(topic, [(None, value) for value in values])
    options = topics.options(topic, **{"kafka.max.partition.fetch.bytes": "1000", "kafka.fetch.max.bytes": "1000"})
    assert [row[0] for row in read(options, (topic, 0, (0, 20)))] == values


def test_an_empty_task_reads_nothing(topics: Topics):
    assert read(topics.options("nothing")) == []


def test_offsets_past_the_end_of_the_log_are_data_loss(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * 3)
    with pytest.raises(DataLossError, match=f"{topic}-0"):
        read(topics.options(topic), (topic, 0, (10, 20)))
    with pytest.warns(UserWarning, match="data loss"):
        assert read(topics.options(topic, failOnDataLoss="false"), (topic, 0, (10, 20))) == []


def test_a_log_that_ends_early_is_data_loss_and_what_it_has_is_read(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * 3)
    options = topics.options(topic, **{"kafkaConsumer.pollTimeoutMs": "1"})
    with pytest.raises(DataLossError, match="no record at offset 3"):
        read(options, (topic, 0, (0, 20)))
    with pytest.warns(UserWarning, match="data loss"):
        assert len(read(options | {"failOnDataLoss": "false"}, (topic, 0, (0, 20)))) == 3


def test_a_topic_that_no_longer_exists_is_data_loss(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * 3)
    assert len(read(topics.options(topic), (topic, 0, (0, 3)))) == 3
    topics.delete(topic)
    with pytest.raises(DataLossError, match="no longer exists"):
        read(topics.options(topic), (topic, 0, (0, 3)))
    with pytest.warns(UserWarning, match="data loss"):
        assert read(topics.options(topic, failOnDataLoss="false"), (topic, 0, (0, 3))) == []


def test_a_broker_that_does_not_answer_is_an_error_and_not_data_loss(topics: Topics):
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafkaConsumer.pollTimeoutMs": "1", "failOnDataLoss": "false"}
    with pytest.raises(KafkaError, match="no broker"):
        read(options, ("topic", 0, (0, 3)))


def test_a_leader_that_no_longer_runs_is_looked_for_in_newer_metadata(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * 3)
    options = topics.options(topic, **{"kafka.client.id": "of-this-test", "kafkaConsumer.pollTimeoutMs": "5000"})
    cluster = link_for(options).cluster

    async def believe_that_another_broker_leads() -> None:
        await cluster.refresh({topic})
        cluster.nodes[99] = Node(99, "127.0.0.1", 1)
        cluster.topics[topic].partitions[0].leader = 99

    link_for(options).run(believe_that_another_broker_leads())
    assert [row[3] for row in read(options, (topic, 0, (0, 3)))] == [0, 1, 2]


def accepted(options, wanted, *batches, aborted=(), log_start=0, error=0, high_watermark=100, tried_ms=0):
    """Offsets that are handed out, and the position afterwards (None when the range is done), of one response."""
    target = TopicPartition("t", 0)
    fetcher = RangeFetcher(OffsetRanges((OffsetRange(target, *wanted),)), options)
    fetcher._fill()
    data = PartitionData(0, error, high_watermark=high_watermark, log_start_offset=log_start, records=b"".join(map(bytes, batches)))
    data.aborted_transactions = [AbortedTransaction(*pair) for pair in aborted]
    parts = fetcher._accept(_Answer(target, data, tried_ms))
    offsets = [
        header.base_offset + index
        for part in parts
        for _, header in part.batches
        for index in range(header.last_offset_delta + 1)
        if part.start <= header.base_offset + index < part.end
    ]
    progress = fetcher._open.get(target)
    return offsets, progress and progress.position


def batch(base_offset, count=2, *, producer_id=-1, is_transactional=False):
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(None, b"v", timestamp_ms=0)
    return builder.build(base_offset=base_offset, producer_id=producer_id, producer_epoch=0, is_transactional=is_transactional)


def marker(offset, producer_id, *, is_commit):
    control = build_end_marker(is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)
    control[0:8] = offset.to_bytes(8, "big")
    return control


def test_control_batches_and_gaps_are_passed_over(topics: Topics):
    options = topics.options("t")
    batches = batch(0), marker(2, 7, is_commit=True), batch(10), batch(50)
    assert accepted(options, (0, 100), *batches) == ([0, 1, 10, 11, 50, 51], 52)
    assert accepted(options, (0, 30), *batches) == ([0, 1, 10, 11], None)  # the batch after the end says that nothing is left
    assert accepted(options, (2, 3), *batches) == ([], None)


def test_with_read_committed_aborted_transactions_are_passed_over(topics: Topics):
    log = (
        batch(0, producer_id=7, is_transactional=True),
        batch(2, producer_id=8, is_transactional=True),
        marker(4, 7, is_commit=False),
        batch(5, producer_id=7, is_transactional=True),
        marker(7, 8, is_commit=True),
        marker(8, 7, is_commit=True),
        batch(9),
    )
    committed = topics.options("t", **{"kafka.isolation.level": "read_committed"})
    assert accepted(committed, (0, 100), *log, aborted=[(7, 0)]) == ([2, 3, 5, 6, 9, 10], 11)
    assert accepted(topics.options("t"), (0, 100), *log)[0] == [0, 1, 2, 3, 5, 6, 9, 10]


def test_offsets_that_retention_has_deleted_are_data_loss(topics: Topics):
    with pytest.raises(DataLossError, match="its log begins at 40"):
        accepted(topics.options("t"), (10, 60), log_start=40, error=1)
    with pytest.warns(UserWarning, match="its log begins at 40"):
        assert accepted(topics.options("t", failOnDataLoss="false"), (10, 60), log_start=40, error=1) == ([], 40)
    with pytest.warns(UserWarning, match="its log begins at 40"):
        assert accepted(topics.options("t", failOnDataLoss="false"), (10, 30), log_start=40, error=1) == ([], None)


def test_what_retention_deletes_while_a_table_is_read_that_follows_its_topic_is_no_loss(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    """It was: ``ottla pipeline run`` ended the query for good, though the table of the next moment has all that there is."""
    topic = topics.create()
    topics.produce(topic, [(b"k", b"%d" % number) for number in range(10)])
    settle = batch_reader._as_of_now

    def settled_before_the_deletion(task: Any, lookup: Any) -> Any:
        found = settle(task, lookup)
        with Admin(topics.bootstrap) as admin:
            admin.delete_records({TopicPartition(topic, 0): 7})
        return found

    monkeypatch.setattr(batch_reader, "_as_of_now", settled_before_the_deletion)
    schema = StructType([StructField("value", BinaryType())])
    reader = batch_reader.TopicReader(topics.options(topic, endingOffsets="follow"), schema)
    found = [value for task in reader.partitions() for rows in reader.read(task) for value in rows.column("value").to_pylist()]
    assert found == [b"7", b"8", b"9"]


def test_a_backlog_of_more_partitions_than_a_response_has_room_for_is_read_completely(topics: Topics):
    topic = topics.create(60)
    rows = pa.RecordBatch.from_pydict(
        {"value": [bytes(500)] * 600, "partition": pa.array([index % 60 for index in range(600)], pa.int32())}
    )
    write_rows(iter([rows, rows]), topics.sink_options(topic) | {"kafka.batch.size": "2000"})
    options = topics.options(topic, **{"kafka.fetch.max.bytes": "4000", "kafkaConsumer.pollTimeoutMs": "1"})
    found = read(options, *((topic, index, (0, 20)) for index in range(60)))
    assert sorted(row[2:] for row in found) == [(index, offset) for index in range(60) for offset in range(20)]


def test_partitions_that_had_no_room_in_a_response_come_first_in_the_next_request(topics: Topics):
    partitions = [TopicPartition("t", index) for index in range(4)]
    fetcher = RangeFetcher(OffsetRanges(tuple(OffsetRange(partition, 0, 10) for partition in partitions)), topics.options("t"))
    fetcher._fill()
    assert list(fetcher._open) == partitions
    for index in (0, 1):
        fetcher._accept(_Answer(partitions[index], PartitionData(index, 0, high_watermark=10, records=bytes(batch(0))), 0))
    for index in (2, 3):
        fetcher._accept(_Answer(partitions[index], PartitionData(index, 0, high_watermark=10, records=b""), 0))
    assert list(fetcher._open) == [*partitions[2:], *partitions[:2]]


def test_an_empty_answer_is_no_loss_where_the_log_has_the_records(topics: Topics):
    options = topics.options("t", failOnDataLoss="false")
    assert accepted(options, (10, 60), high_watermark=60, tried_ms=100) == ([], 10)
    with pytest.raises(KafkaError, match=r"t-0 from offset 10 on arrived within kafkaConsumer\.pollTimeoutMs=120000"):
        accepted(options, (10, 60), high_watermark=11, tried_ms=120_001)
    with pytest.warns(UserWarning, match="the log ends at 10, but the query planned offsets up to 60"):
        assert accepted(options, (10, 60), high_watermark=10, tried_ms=120_001) == ([], None)


def test_a_task_keeps_trying_for_as_long_as_it_was_configured(topics: Topics):
    for seconds in (1, 600):
        options = topics.options("t", **{"kafkaConsumer.pollTimeoutMs": str(seconds * 1000)})
        assert accepted(options, (10, 60), high_watermark=10, tried_ms=seconds * 1000) == ([], 10)
        assert accepted(options, (10, 60), error=ErrorCode.NOT_LEADER_OR_FOLLOWER, tried_ms=seconds * 1000) == ([], 10)
        with pytest.raises(DataLossError, match="ends at 10"):
            accepted(options, (10, 60), high_watermark=10, tried_ms=seconds * 1000 + 1)
        with pytest.raises(KafkaError, match="offset 10"):
            accepted(options, (10, 60), error=ErrorCode.NOT_LEADER_OR_FOLLOWER, tried_ms=seconds * 1000 + 1)


def test_a_process_has_one_link_to_each_cluster(topics: Topics):
    assert link_for(topics.options("a")) is link_for(topics.options("b"))
    assert link_for(topics.options("a")) is not link_for(topics.options("a", **{"kafka.client.id": "other"}))


def test_what_a_task_reads_a_consumer_reads(topics: Topics):
    topic = topics.create()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topics.produce(topic, [(None, codec.encode() * 100)] * 50, compression_type=codec)
    rows = read(topics.options(topic), (topic, 0, (0, 250)))
    with Consumer(topics.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records: list = []
        while len(records) < 250:
            records += consumer.poll(1000)
    assert rows == [(record.value, topic, 0, record.offset) for record in records]
