"""A batch read of topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from ottla.spark.columns import arrow_schema
from ottla.spark.lookup import Lookup
from ottla.spark.narrowing import Narrowing, narrowing_of
from ottla.spark.offsets import Bound, Offsets, ending_bound, falls_back, follows, starting_bound
from ottla.spark.options import boolean, invalid, positive
from ottla.spark.planning import (
    ROWS_PER_TASK_MIN,
    OffsetRange,
    OffsetRanges,
    packed,
    planned,
    ranges_between,
    task_count_default,
)
from ottla.spark.reading import read_ranges, report_loss
from ottla.spark.worker_task import worker_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType


class TopicReader(DataSourceReader):
    """A batch read. Its end is settled when it is planned: a topic joined to a stream as a table stays as it was at the start.

    With ``endingOffsets=follow`` it is settled when it is read: Spark plans such a table once, and reads it again in each batch.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[OffsetRanges]:
        arrow_schema(self._schema)
        first, last = starting_bound(self._options, is_stream=False), ending_bound(self._options)
        lookup = Lookup(self._options)
        found = lookup.selection(must_exist=True)
        start = lookup.resolve(first, found.partitions, none_is_latest=falls_back(self._options))
        end = lookup.resolve(last, found.partitions, none_is_latest=True)
        check_order(first, start, last, end, self._options)
        if self._narrowing is not None:
            start, end = self._narrowing.narrowed(start, end, lookup)
        if follows(self._options):
            return _followed(start, end, self._options)
        return planned(ranges_between(start, end), self._options, lookup.weigh, found.topic_ids) or [OffsetRanges(())]

    def read(self, partition: OffsetRanges) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        is_followed = follows(self._options)
        if is_followed:
            partition = _as_of_now(partition, Lookup(self._options))
        with worker_task():
            yield from read_ranges(partition, self._options, arrow_schema(self._schema), from_start=is_followed)


def check_order(first: Bound, start: Offsets, last: Bound, end: Offsets, options: dict[str, str]) -> None:
    """Checks that a start that was asked for is not after the end: such a read would have no rows, and would not say why.

    INVALID_CONFIG where the options contradict each other; data loss where the log has not come to the start, or has been truncated.
    """
    for partition in sorted(start):
        if start[partition] <= end[partition] or not first.is_given(partition):
            continue
        if last.is_given(partition):
            text = f"{first.option} of {partition} is offset {start[partition]}, and {last.option} is offset {end[partition]}, before it"
            raise invalid(f"{text}: nothing would be read")
        text = f"{first.option} of {partition} is {start[partition]}, and its log ends at {end[partition]}: such records do not exist"
        report_loss(text, fails=boolean(options, "failOnDataLoss", True))


def _followed(start: Offsets, end: Offsets, options: dict[str, str]) -> list[OffsetRanges]:
    """Divides what is there now into tasks; each partition is in one, in one piece."""
    sizes = [OffsetRange(partition, start[partition], max(end[partition], start[partition])) for partition in sorted(start)]
    count = max(
        1,
        min(len(sizes), sum(found.size for found in sizes) // ROWS_PER_TASK_MIN, positive(options, "defaultTasks") or task_count_default()),
    )
    return [OffsetRanges(tuple(group)) for group in packed(sizes, count)] or [OffsetRanges(())]


def _as_of_now(task: OffsetRanges, lookup: Lookup) -> OffsetRanges:
    """Returns what to read now: from the planned start, or where the log starts by now, to where it ends now."""
    partitions = [found.partition for found in task.ranges]
    first, last = lookup.earliest(partitions), lookup.latest(partitions)
    ranges = (OffsetRange(found.partition, max(found.start, first[found.partition]), last[found.partition]) for found in task.ranges)
    return OffsetRanges(tuple(found for found in ranges if found.size > 0))


class FilteredTopicReader(TopicReader):
    """A batch read of what the query's filters leave."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Takes the filters; Spark also applies all of them to the rows."""
        self._narrowing = narrowing_of(filters)
        return filters
