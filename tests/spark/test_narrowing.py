"""What filters leave to be read, without Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.conftest import Topics

from ottla.spark.batch_reader import FilteredTopicReader, TopicReader
from ottla.spark.narrowing import narrowing_of
from ottla.spark.source import OttlaDataSource
from ottla.types import TopicPartition

VALUE = StructType([StructField("value", BinaryType())])
ADMITS: dict[type, Any] = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
}
TIME_MS = 1_700_000_000_000


def at(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=TIME_MS + ms)


class Records:
    """Answers as a Lookup does, of partitions whose records have these times: the offset is the place in the list."""

    def __init__(self, times: dict[TopicPartition, list[int]]) -> None:
        self.times = times

    def at_times(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            partition: next((offset for offset, time in enumerate(self.times[partition]) if time >= time_ms), -1)
            for partition, time_ms in wanted.items()
        }


def left_of(filters: list[Filter], records: Records) -> set[tuple[int, int]]:
    """Partition and offset of what is left of all records."""
    start, end = dict.fromkeys(records.times, 0), {partition: len(times) for partition, times in records.times.items()}
    lookup: Any = records
    start, end = narrowing_of(filters).narrowed(start, end, lookup)
    return {(partition.partition, offset) for partition in end for offset in range(start[partition], end[partition])}


numbers = st.integers(-1, 6)
comparisons = st.sampled_from(list(ADMITS))
filters = st.one_of(
    st.builds(lambda kind, column, value: kind((column,), value), comparisons, st.sampled_from(["partition", "offset"]), numbers),
    st.builds(lambda column, values: In((column,), tuple(values)), st.sampled_from(["partition", "offset"]), st.lists(numbers)),
    st.builds(lambda kind, value: kind(("timestamp",), at(value)), comparisons, numbers | st.just(2.5)),
)
logs = st.lists(st.lists(st.integers(0, 5).map(lambda ms: TIME_MS + ms), max_size=5), min_size=1, max_size=3)


def admits(filter: Any, partition: int, offset: int, time_ms: int) -> bool:
    found: Any = {"partition": partition, "offset": offset, "timestamp": at(time_ms - TIME_MS)}[filter.attribute[0]]
    return found in filter.value if isinstance(filter, In) else ADMITS[type(filter)](found, filter.value)


@given(st.lists(filters, max_size=3), logs)
def test_nothing_that_the_filters_admit_is_left_out(wanted, times):
    records = Records({TopicPartition("t", index): list(log) for index, log in enumerate(times)})
    admitted = {
        (index, offset)
        for index, log in enumerate(times)
        for offset, time_ms in enumerate(log)
        if all(admits(each, index, offset, time_ms) for each in wanted)
    }
    assert admitted <= left_of(wanted, records)


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ([EqualTo(("partition",), 1)], {(1, 0), (1, 1)}),
        ([In(("partition",), (0, 7))], {(0, 0), (0, 1)}),
        ([In(("partition",), (None,))], set()),
        ([GreaterThan(("offset",), 0), LessThanOrEqual(("partition",), 0)], {(0, 1)}),
        ([LessThan(("offset",), 1)], {(0, 0), (1, 0)}),
        ([EqualTo(("offset",), 1), EqualTo(("offset",), 0)], set()),
        ([GreaterThanOrEqual(("timestamp",), at(10))], {(0, 1), (1, 0), (1, 1)}),
        ([GreaterThanOrEqual(("timestamp",), at(25))], set()),
    ],
)
def test_filters_leave_little(wanted, left):
    records = Records({TopicPartition("t", index): [TIME_MS + 10 * index, TIME_MS + 10 * index + 10] for index in (0, 1)})
    assert left_of(wanted, records) == left


@pytest.mark.parametrize(
    "filter",
    [
        EqualTo(("value",), b"x"),
        IsNotNull(("offset",)),
        Not(EqualTo(("offset",), 1)),
        EqualTo(("offset",), None),
        LessThan(("timestamp",), at(0)),
        GreaterThan(("timestamp",), datetime(2040, 1, 1)),  # of no zone, so its time is unknown
        GreaterThan(("headers", "offset"), 5),
    ],
)
def test_a_filter_that_says_nothing_about_what_is_read_leaves_everything(filter):
    assert len(left_of([filter], Records({TopicPartition("t", 0): [TIME_MS] * 4}))) == 4


def test_a_reader_takes_filters_where_the_session_or_the_option_says_so(topics: Topics, monkeypatch: pytest.MonkeyPatch):
    topic = topics.create(2)
    topics.produce(topic, [(None, b"v")] * 3, partition=0)
    topics.produce(topic, [(None, b"v")] * 3, partition=1)
    monkeypatch.delenv("OTTLA_SPARK_FILTERS", raising=False)
    assert type(OttlaDataSource(topics.options(topic)).reader(VALUE)) is TopicReader
    monkeypatch.setenv("OTTLA_SPARK_FILTERS", "true")
    assert type(OttlaDataSource(topics.options(topic, pushFilters="false")).reader(VALUE)) is TopicReader
    reader = OttlaDataSource(topics.options(topic)).reader(VALUE)
    assert isinstance(reader, FilteredTopicReader)
    wanted: list[Filter] = [EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 1)]
    assert reader.pushFilters(wanted) == wanted  # Spark applies them too
    [task] = reader.partitions()
    assert [(piece.partition.partition, piece.start, piece.end) for piece in task.ranges] == [(1, 1, 3)]
