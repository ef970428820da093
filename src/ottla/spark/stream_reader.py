"""A streaming read of topics: which offsets each batch has.

``initialOffset``, ``latestOffset`` and ``partitions`` run in one driver-side process for the life of the query, ``read`` in workers,
unless the batch is small (``prefetch``).
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.spark.columns import arrow_schema
from ottla.spark.fair_limit import FairLimit
from ottla.spark.lookup import Lookup, Selection
from ottla.spark.offsets import (
    BEGAN_AT,
    Offsets,
    TopicIds,
    as_json,
    batch_start,
    falls_back,
    first_end_as_json,
    from_json,
    ids_of,
    made_again,
    starting_bound,
    with_ids,
)
from ottla.spark.options import boolean, duration_ms, positive
from ottla.spark.orphans import end_with_jvm
from ottla.spark.planning import OffsetRanges, planned, ranges_between
from ottla.spark.prefetch import SIMPLE, Prefetch
from ottla.spark.reading import AFTER_DELETION, read_ranges, report_loss
from ottla.spark.worker_task import worker_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

IDLE_MS: Final = 500
ROWS_MAX: Final = 200_000
OTHER_TOPICS: Final = (
    "That is another checkpointLocation, or another --app of ottla pipeline run. Where the topic was left out on purpose, "
    "failOnDataLoss=false goes on with the others"
)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Offsets are ``{"topic": {"partition": offset}}``, each the one to be read next, and have their topics' ids."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._lookup: Lookup | None = None
        self._prefetch: Prefetch | None = None
        self._initial: Offsets | None = None
        self._limit = FairLimit()
        self._seen: Offsets | None = None  # the ends as last fetched, for progress reports
        self._is_still = False  # nothing had come after ``_seen`` when it was last waited for
        self._target: Offsets | None = None  # where a query that is triggered availableNow ends
        self._batch_ms = time.monotonic_ns() // 1_000_000  # when the last batch was let go, for maxTriggerDelay

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lookup": None, "_prefetch": None}

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What ``isinstance`` asks. After a plan PySpark asks it whether the reader is a simple one, which has rows, too."""
        return SIMPLE if SIMPLE is not None and self._prefetch else type(self)

    @property
    def _cluster(self) -> Lookup:
        if self._lookup is None:
            arrow_schema(self._schema)
            end_with_jvm()
            self._lookup = Lookup(self._options)
        return self._lookup

    def initialOffset(self) -> dict[str, Any]:
        """Returns the same answer to both questions of the first batch. After a restart it may differ (``offsets``)."""
        if self._initial is None:
            bound = starting_bound(self._options, is_stream=True)
            partitions = self._cluster.selection(must_exist=True).partitions
            self._initial = self._cluster.resolve(bound, partitions, none_is_latest=falls_back(self._options))
        return as_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns a limit: a backlog is read in batches, for an exactly-once sink has all of a batch in the driver and one transaction."""
        rows_max = positive(self._options, "maxOffsetsPerTrigger")
        if rows_max is None:
            rows_max = max(ROWS_MAX, positive(self._options, "minOffsetsPerTrigger") or 0)
        return ReadMaxRows(rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns how far the next batch may go. Waits for up to half a second while there is nothing, for Spark asks without pause.

        Not in the first batch: Spark runs that one even when it is empty, and its end keeps where the query started.
        """
        is_first = BEGAN_AT not in start and from_json(start) == self._initial
        begin, end, ids = self._next(start, limit)
        if end == begin and not is_first and self._target is None and self._has_news():
            begin, end, ids = self._next(start, limit)
        if is_first:
            return with_ids(first_end_as_json(end, begin), ids)
        return start if end == begin else with_ids(as_json(end), ids)

    def _has_news(self) -> bool:
        """True when something has come within half a second; if not, the ends are those that were seen."""
        assert self._seen is not None, "the ends have been looked up"
        self._is_still = not self._cluster.has_news(self._seen, IDLE_MS)
        return not self._is_still

    def _next(self, start: dict[str, Any], limit: ReadLimit) -> tuple[Offsets, Offsets, TopicIds]:
        """Returns the next batch: its start, without what was deleted since ``start``, its end, and the ids of its topics."""
        found = self._selection(ids_of(start))
        again = made_again(ids_of(start), found.topic_ids)
        for topic in sorted(again):
            text = f"topic {topic!r} was deleted and made again: the query has read another topic of that name"
            report_loss(text, fails=boolean(self._options, "failOnDataLoss", True), way_out=AFTER_DELETION)
        begin = {partition: offset for partition, offset in from_json(start).items() if partition.topic not in again}
        return begin, self._end(begin, found, limit), found.topic_ids

    def _selection(self, ids: TopicIds) -> Selection:
        """Returns what is read. Another id than is known is asked for again: a broker may not have heard of the newest topic yet."""
        found = self._cluster.selection(must_exist=False)
        for _ in range(self._cluster.retry_count):
            if not made_again(ids, found.topic_ids):
                break
            self._cluster.pause()
            found = self._cluster.selection(must_exist=False)
        return found

    def _end(self, begin: Offsets, found: Selection, limit: ReadLimit) -> Offsets:
        seen = self._look(begin, found)
        end = seen
        if self._target is not None:
            # Never before what the checkpoint has already, and nothing of partitions that have come since.
            bounds = {partition: max(self._target.get(partition, 0), begin.get(partition, 0)) for partition in {*self._target, *begin}}
            end = {partition: min(offset, bounds[partition]) for partition, offset in seen.items() if partition in bounds}
        start = begin | self._fresh(begin, end)
        if self._is_held_back(start, end, limit):
            return begin
        if isinstance(limit, ReadMaxRows):
            end = self._limit.end(self._without_losses(start, end, limit.max_rows), end, limit.max_rows)
        if end != begin:
            self._batch_ms = time.monotonic_ns() // 1_000_000
        return end

    def _look(self, begin: Offsets, found: Selection) -> Offsets:
        """Returns the ends of all partitions, new ones too; what is missing or is before ``begin`` is data loss."""
        fails = boolean(self._options, "failOnDataLoss", True)
        for partition in sorted(set(begin) - set(found.partitions)):
            if self._cluster.reads(partition):
                report_loss(f"{partition} no longer exists", fails=fails, way_out=AFTER_DELETION)
            else:
                text = "which the query does not read any more: other topics need another checkpoint"
                report_loss(f"the checkpoint has offsets of {partition}, {text}", fails=fails, way_out=OTHER_TOPICS)
        if self._is_still and self._seen is not None and self._seen.keys() == set(found.partitions):
            self._is_still = False
            return self._seen
        self._seen = seen = self._ends(begin, found)
        for partition, offset in seen.items():
            if offset < begin.get(partition, 0):
                text = f"{partition} ends at {offset}, before offset {begin[partition]} where the query begins or goes on"
                text = f"{text}: its topic was deleted and made again, or its log has lost its end"
                report_loss(text, fails=fails, way_out=AFTER_DELETION)
        return seen

    def _ends(self, begin: Offsets, found: Selection) -> Offsets:
        """Returns the ends of the partitions. An end before ``begin`` is asked for again: a new leader may answer with an older one."""
        seen = self._cluster.latest(found.partitions)
        for _ in range(self._cluster.retry_count):
            if all(offset >= begin.get(partition, 0) for partition, offset in seen.items()):
                break
            self._cluster.pause()
            seen = self._cluster.latest(found.partitions)
        return seen

    def _without_losses(self, start: Offsets, end: Offsets, rows_max: int) -> Offsets:
        """Returns the start of a batch that has to end early, without offsets that no longer exist, where the query goes on after them.

        They are no rows: a limit of 1,000 would take thousands of empty batches for what retention has deleted in an hour.
        """
        count = sum(max(0, offset - start[partition]) for partition, offset in end.items())
        if count <= rows_max or boolean(self._options, "failOnDataLoss", True):
            return start
        first = self._cluster.earliest(end)
        return start | {partition: max(start[partition], first.get(partition, 0)) for partition in end}

    def _fresh(self, begin: Offsets, end: Offsets) -> Offsets:
        """Returns where the partitions start that have come since; what was before their first record is data loss."""
        found = self._cluster.earliest(partition for partition in end if partition not in begin)
        for partition, offset in found.items():
            if offset > 0:
                text = f"{partition} is new to the query and its log begins at {offset}: earlier records no longer exist"
                report_loss(text, fails=boolean(self._options, "failOnDataLoss", True))
        return found

    def _is_held_back(self, start: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """True when minOffsetsPerTrigger makes the batch wait for more."""
        rows_min = positive(self._options, "minOffsetsPerTrigger")
        if rows_min is None or self._target is not None:
            return False
        if isinstance(limit, ReadAllAvailable) and positive(self._options, "maxOffsetsPerTrigger") is not None:
            return False  # a trigger that takes everything at once
        waiting = sum(max(0, offset - start[partition]) for partition, offset in end.items())
        waited_ms = time.monotonic_ns() // 1_000_000 - self._batch_ms
        return waiting < rows_min and waited_ms < duration_ms(self._options, "maxTriggerDelay", "15m")

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._cluster.latest(self._cluster.selection(must_exist=False).partitions)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._seen is None else as_json(self._seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRanges]:
        first, last = batch_start(start, end), from_json(end)
        ranges = ranges_between(first | self._fresh(first, last), last)
        tasks = planned(ranges, self._options, self._cluster.weigh, ids_of(end))
        if self._prefetch is None:
            self._prefetch = Prefetch(self._options, arrow_schema(self._schema))
        self._prefetch.plan(tasks)
        return tasks

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Returns the rows of the batch that was planned last."""
        assert self._prefetch is not None, "PySpark asks where there are rows"
        return iter(self._prefetch.take())

    def read(self, partition: OffsetRanges) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        with worker_task():
            yield from read_ranges(partition, self._options, arrow_schema(self._schema))

    def stop(self) -> None:
        """Ends this process where Spark has closed the connection to it, as at the end of a query: no answer is awaited.

        PySpark would write there that the connection is closed, and print on stderr what comes of that.
        """
        if is_left_by_spark(sys.exception()):
            os._exit(0)


def is_left_by_spark(error: BaseException | None) -> bool:
    """Returns whether the error is of PySpark's own reading of a question, or writing of an answer, to an end that was closed."""
    if not isinstance(error, (EOFError, ConnectionError)):
        return False
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not any(module.startswith("ottla.") for module in modules)
