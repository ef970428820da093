"""Rows of small batches that travel with the plan of the batch: which batches are, and that Spark takes them so."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.conftest import Topics

from ottla.spark import prefetch
from ottla.spark.offsets import from_json
from ottla.spark.planning import BYTES_PER_TASK_MIN, OffsetRanges
from ottla.spark.prefetch import ROWS_MAX
from ottla.spark.reading import DataLossError, RangeFetcher, read_ranges
from ottla.spark.source import OttlaDataSource
from ottla.spark.stream_reader import TopicStreamReader
from ottla.sync import Admin

VALUE = StructType([StructField("value", BinaryType())])


class Plan:
    """A batch from the beginning of a topic to ``end``, planned as PySpark does; ``rows`` is None where a task has to read them."""

    def __init__(self, stream: TopicStreamReader, topic: str, end: int) -> None:
        start = {topic: {"0": 0}}
        [self.task] = stream.partitions(start, {topic: {"0": end}})
        self.rows: list[bytes] | None = None
        if isinstance(stream, _SimpleStreamReaderWrapper):
            self.rows = [value for batch in stream.getCache(start, {topic: {"0": end}}) for value in batch["value"].to_pylist()]
        assert not isinstance(stream, _SimpleStreamReaderWrapper)


def reader(topics: Topics, topic: str, **options: str) -> TopicStreamReader:
    return TopicStreamReader(topics.options(topic, startingOffsets="earliest", **options), VALUE)


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[OffsetRanges]:
    """Fills with the tasks whose rows were tried to be read before the plan was given."""
    asked: list[OffsetRanges] = []
    read = read_ranges

    def noted(task: OffsetRanges, options: dict[str, str], schema: pa.Schema, *, within_ms: int) -> Iterator[pa.RecordBatch]:
        asked.append(task)
        return read(task, options, schema, within_ms=within_ms)

    monkeypatch.setattr(prefetch, "read_ranges", noted)
    return asked


def test_rows_of_a_small_batch_travel_with_its_plan(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [(None, b"%d" % number) for number in range(10)])
    stream = reader(topics, topic)
    assert Plan(stream, topic, 3).rows == [b"0", b"1", b"2"]
    plan = Plan(stream, topic, 10)
    assert plan.rows == [b"%d" % number for number in range(10)]
    assert [value for batch in stream.read(plan.task) for value in batch["value"].to_pylist()] == plan.rows


def test_a_batch_with_many_rows_is_left_to_a_task(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * (ROWS_MAX + 1), batch_size=65_536)
    asked = noted_reads(monkeypatch)
    stream = reader(topics, topic)
    assert Plan(stream, topic, ROWS_MAX + 1).rows is None
    assert not asked
    assert len(Plan(stream, topic, ROWS_MAX).rows or []) == ROWS_MAX


def test_a_batch_with_many_bytes_is_left_to_a_task_and_the_next_one_like_it_is_not_tried(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic, size = topics.create(), 500_000
    count = BYTES_PER_TASK_MIN // size + 1
    topics.produce(topic, [(None, bytes(size))] * count)
    asked = noted_reads(monkeypatch)
    stream = reader(topics, topic)
    assert [Plan(stream, topic, count).rows, Plan(stream, topic, count).rows] == [None, None]
    assert len(asked) == 1
    assert len(Plan(stream, topic, count - 1).rows or []) == count - 1


def test_records_that_have_become_smaller_travel_with_their_plan_again(topics: Topics):
    topic, count = topics.create(), 1000
    topics.produce(topic, [(None, b"v")] * count)
    stream = reader(topics, topic)
    assert Plan(stream, topic, count).rows is not None
    assert stream._prefetch is not None
    stream._prefetch._bytes_per_offset = BYTES_PER_TASK_MIN / count * 2  # as of records before
    tried = [Plan(stream, topic, count).rows is not None for _ in range(6)]
    assert tried == [False] * 4 + [True] * 2


def test_what_cannot_be_read_is_left_to_the_task_which_says_why(topics: Topics):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * 5)
    stream = reader(topics, topic)
    end = from_json(stream.latestOffset(stream.initialOffset(), ReadAllAvailable()))
    with Admin(topics.bootstrap) as admin:
        admin.delete_records(dict.fromkeys(end, 3))
    plan = Plan(stream, topic, 5)
    assert plan.rows is None
    with pytest.raises(DataLossError, match="its log begins at 3"):
        list(stream.read(plan.task))
    with pytest.warns(UserWarning, match="its log begins at 3"):
        assert Plan(reader(topics, topic, failOnDataLoss="false"), topic, 5).rows == [b"v"] * 2


def test_a_broker_that_is_silent_holds_up_the_plan_for_no_longer_than_the_patience(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * 3)
    stream = reader(topics, topic)
    assert Plan(stream, topic, 3).rows == [b"v"] * 3

    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(RangeFetcher, "_fetch", silent)
    monkeypatch.setattr(prefetch, "PATIENCE_MS", 10)
    assert Plan(stream, topic, 3).rows is None


def test_a_pyspark_without_such_readers_has_all_rows_read_by_tasks(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic = topics.create()
    topics.produce(topic, [(None, b"v")] * 3)
    monkeypatch.setattr(prefetch, "SIMPLE", None)
    assert Plan(reader(topics, topic), topic, 3).rows is None


class Noting(OttlaDataSource):
    """A source whose tasks leave a file, named in its options, when they read."""

    @classmethod
    def name(cls) -> str:
        return "noting"

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        note = Path(self.options.pop("note"))

        class NotingReader(TopicStreamReader):
            def read(self, partition):
                note.touch()
                return super().read(partition)

        made = super().streamReader(schema)
        assert isinstance(made, TopicStreamReader)
        return NotingReader(made._options, schema)


@pytest.mark.parametrize(("size", "is_read_by_task"), [(1, False), (BYTES_PER_TASK_MIN // 8, True)])
def test_spark_starts_no_python_in_a_task_for_a_small_batch(spark, topics: Topics, tmp_path: Path, size: int, is_read_by_task: bool):
    """Nor for a second action over it, as a foreachBatch may have."""
    topic, note, found = topics.create(2), tmp_path / "note", []
    for partition in range(2):
        topics.produce(topic, [(None, bytes(size))] * 6, partition=partition)
    spark.dataSource.register(Noting)
    options = topics.options(topic, startingOffsets="earliest", note=str(note))
    rows = spark.readStream.format("noting").options(**options).load()

    def taken(batch, batch_id: int) -> None:
        for _ in range(2):
            found.append(sorted((row.partition, row.offset, len(row.value)) for row in batch.collect()))

    query = rows.writeStream.foreachBatch(taken).trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start()
    query.awaitTermination()
    assert found == [[(partition, offset, size) for partition in range(2) for offset in range(6)]] * 2
    assert note.exists() is is_read_by_task
