"""``format("ottla")``: topics as DataFrames, and DataFrames to topics, as Spark's Python Data Source.

Options and columns are those of Spark's own Kafka connector (``options.TABLE``, ``columns.COLUMN_TYPES``), so a query moves
between the two by one word. Spark imports this module in each of its Python processes: everything heavy is imported in methods.

Processes: a stream's ``initialOffset``, ``latestOffset`` and ``partitions`` run in one driver-side process for the
life of the query; ``read`` and ``write`` run in workers, on objects that were pickled. So constructors only keep what they get.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from ottla.spark.lookup import Lookup
    from ottla.spark.narrowing import Narrowing
    from ottla.spark.offsets import FairLimit, Offsets
    from ottla.spark.planning import OffsetRanges

IDLE_MS: Final = 500
IDLE_STEP_MS: Final = 25


class OttlaDataSource(DataSource):
    """What Spark makes for each ``format("ottla")``; discovered through the module ``pyspark_ottla``."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        from ottla.spark.columns import COLUMN_TYPES
        from ottla.spark.options import boolean

        with_headers = boolean({key.lower(): value for key, value in self.options.items()}, "includeheaders", False)
        return ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items() if with_headers or name != "headers")

    def reader(self, schema: StructType) -> TopicReader:
        from ottla.spark.options import BATCH, boolean
        from ottla.spark.planning import FILTERS_VARIABLE

        options = _reading_options(self.options, BATCH)
        # Spark fails a reader that takes filters while it gives none, so each session has its own kind.
        pushes = boolean(options, "pushFilters", os.environ.get(FILTERS_VARIABLE) == "true")
        return (FilteredTopicReader if pushes else TopicReader)(options, schema)

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        from ottla.spark.options import STREAM

        return TopicStreamReader(_reading_options(self.options, STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        if overwrite:
            from ottla.spark.options import invalid

            raise invalid('mode("overwrite") is refused: a topic can only be appended to; use mode("append")')
        return TopicWriter(self._writing_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        if overwrite:
            from ottla.spark.options import invalid

            way_out = "use to_topic(...) or foreachBatch(sink(...)) of ottla.spark, which take every mode"
            raise invalid(f'outputMode("complete") is refused: Spark lets format("ottla") append only; {way_out}')
        return TopicStreamWriter(self._writing_options(schema))

    def _writing_options(self, schema: StructType) -> dict[str, str]:
        from ottla.spark.options import SINK, checked
        from ottla.spark.rows import check_columns

        options = checked(self.options, SINK)
        check_columns(schema, options)
        return options


def _reading_options(given: Mapping[str, str], use: str) -> dict[str, str]:
    from ottla.spark.lookup import check_selection
    from ottla.spark.options import checked

    options = checked(given, use)
    check_selection(options)
    return options


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Arrow's form of the schema, as Spark will compare it. KafkaError INVALID_CONFIG for columns that topics do not have."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from ottla.spark.columns import COLUMN_TYPES
    from ottla.spark.options import invalid

    for field in schema:
        kind = COLUMN_TYPES.get(field.name)
        if kind is None:
            raise invalid(f"a topic has no column {field.name!r}, only {', '.join(COLUMN_TYPES)}")
        if field.dataType.simpleString() != kind:
            raise invalid(f"column {field.name} is {kind}, not {field.dataType.simpleString()}")
    return to_arrow_schema(schema, timezone="UTC")


class TopicReader(DataSourceReader):
    """A batch read. Its end is settled when it is planned: a topic joined to a stream as a table stays as it was at the start."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[OffsetRanges]:
        from ottla.spark.lookup import Lookup
        from ottla.spark.offsets import ending_bound, starting_bound
        from ottla.spark.planning import OffsetRanges, planned, ranges_between

        _arrow_schema(self._schema)
        first, last = starting_bound(self._options, is_stream=False), ending_bound(self._options)
        lookup = Lookup(self._options)
        partitions = lookup.partitions(must_exist=True)
        start = lookup.resolve(first, partitions, none_is_latest=_falls_back(self._options))
        end = lookup.resolve(last, partitions, none_is_latest=True)
        if self._narrowing is not None:
            start, end = self._narrowing.narrowed(start, end, lookup)
        return planned(ranges_between(start, end), self._options) or [OffsetRanges(())]

    def read(self, partition: OffsetRanges) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        from ottla.spark.reading import read_ranges

        return read_ranges(partition, self._options, _arrow_schema(self._schema))


class FilteredTopicReader(TopicReader):
    """A batch read of what the query's filters leave."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Spark applies all of them to the rows besides."""
        from ottla.spark.narrowing import narrowing_of

        self._narrowing = narrowing_of(filters)
        return filters


def _falls_back(options: Mapping[str, str]) -> bool:
    """Whether a start by time that no record reaches becomes the end."""
    from ottla.spark.options import invalid

    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise invalid(f"startingOffsetsByTimestampStrategy={strategy} is neither error nor latest")
    return strategy == "latest"


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Offsets are ``{"topic": {"partition": offset}}``, each the one to be read next."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._lookup: Lookup | None = None
        self._initial: Offsets | None = None
        self._limit: FairLimit | None = None
        self._seen: Offsets | None = None  # the ends as last heard, for progress reports
        self._target: Offsets | None = None  # where a query that is triggered availableNow ends
        self._batch_ms = time.monotonic_ns() // 1_000_000  # when the last batch was let go, for maxTriggerDelay

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lookup": None}

    @property
    def _cluster(self) -> Lookup:
        if self._lookup is None:
            from ottla.spark.lookup import Lookup

            _arrow_schema(self._schema)
            self._lookup = Lookup(self._options)
        return self._lookup

    def initialOffset(self) -> dict[str, Any]:
        """Asked for twice in the first batch: the answer stays the same. After a restart it may not (``offsets``)."""
        from ottla.spark.offsets import as_json, starting_bound

        if self._initial is None:
            bound = starting_bound(self._options, is_stream=True)
            partitions = self._cluster.partitions(must_exist=True)
            self._initial = self._cluster.resolve(bound, partitions, none_is_latest=_falls_back(self._options))
        return as_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        from ottla.spark.options import positive

        rows_max = positive(self._options, "maxOffsetsPerTrigger")
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch may go. Looks again for up to half a second while there is nothing, for Spark asks without pause.

        Not in the first batch: Spark runs that one even when it is empty, and its end keeps where the query began.
        """
        from ottla.spark.offsets import BEGAN_AT, as_json, first_end_as_json, from_json

        begin = from_json(start)
        if BEGAN_AT not in start and begin == self._initial:
            return first_end_as_json(self._end(begin, limit), begin)
        deadline_ms = time.monotonic_ns() // 1_000_000 + IDLE_MS
        while True:
            end = self._end(begin, limit)
            if end != begin:
                return as_json(end)
            if self._target is not None or time.monotonic_ns() // 1_000_000 >= deadline_ms:
                return start
            time.sleep(IDLE_STEP_MS / 1000)

    def _end(self, begin: Offsets, limit: ReadLimit) -> Offsets:
        from ottla.spark.offsets import FairLimit

        seen = self._look(begin)
        end = seen
        if self._target is not None:
            # Never behind what the checkpoint has already, and nothing of partitions that have come since.
            bounds = {partition: max(self._target.get(partition, 0), begin.get(partition, 0)) for partition in {*self._target, *begin}}
            end = {partition: min(offset, bounds[partition]) for partition, offset in seen.items() if partition in bounds}
        start = begin | self._fresh(begin, end)
        if self._is_held_back(start, end, limit):
            return begin
        if isinstance(limit, ReadMaxRows):
            self._limit = self._limit or FairLimit()
            end = self._limit.end(start, end, limit.max_rows)
        if end != begin:
            self._batch_ms = time.monotonic_ns() // 1_000_000
        return end

    def _look(self, begin: Offsets) -> Offsets:
        """The ends of all partitions, new ones too; what is missing or lies before ``begin`` is data loss."""
        from ottla.spark.options import boolean
        from ottla.spark.reading import report_loss

        fails = boolean(self._options, "failOnDataLoss", True)
        partitions = self._cluster.partitions(must_exist=False)
        for partition in sorted(set(begin) - set(partitions)):
            report_loss(f"{partition} does not exist any more", fails=fails)
        seen = self._cluster.latest(partitions)
        for partition, offset in seen.items():
            if offset < begin.get(partition, 0):
                report_loss(f"{partition} ends at {offset}, before offset {begin[partition]} that the query has read up to", fails=fails)
        self._seen = seen
        return seen

    def _fresh(self, begin: Offsets, end: Offsets) -> Offsets:
        """Where partitions begin that have come since; what lay before their first record is data loss."""
        from ottla.spark.options import boolean
        from ottla.spark.reading import report_loss

        found = self._cluster.earliest(partition for partition in end if partition not in begin)
        for partition, offset in found.items():
            if offset > 0:
                text = f"{partition} is new to the query and its log begins at {offset}: the records before are gone"
                report_loss(text, fails=boolean(self._options, "failOnDataLoss", True))
        return found

    def _is_held_back(self, start: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger makes the batch wait for more."""
        from ottla.spark.options import duration_ms, positive

        rows_min = positive(self._options, "minOffsetsPerTrigger")
        if rows_min is None or self._target is not None:
            return False
        if isinstance(limit, ReadAllAvailable) and positive(self._options, "maxOffsetsPerTrigger") is not None:
            return False  # a trigger that takes everything at once
        waiting = sum(max(0, offset - start[partition]) for partition, offset in end.items())
        waited_ms = time.monotonic_ns() // 1_000_000 - self._batch_ms
        return waiting < rows_min and waited_ms < duration_ms(self._options, "maxTriggerDelay", "15m")

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._cluster.latest(self._cluster.partitions(must_exist=False))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        from ottla.spark.offsets import as_json

        return None if self._seen is None else as_json(self._seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRanges]:
        from ottla.spark.offsets import batch_start, from_json
        from ottla.spark.planning import planned, ranges_between

        first, last = batch_start(start, end), from_json(end)
        return planned(ranges_between(first | self._fresh(first, last), last), self._options)

    def read(self, partition: OffsetRanges) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        from ottla.spark.reading import read_ranges

        return read_ranges(partition, self._options, _arrow_schema(self._schema))


class TopicWriter(DataSourceArrowWriter):
    """A batch write, at least once: a task that fails after sending is run again."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        from ottla.spark.rows import RowsWritten, write_rows

        return RowsWritten(write_rows(iterator, self._options))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write in append mode, the only one that Spark lets Python sinks have; ``sink`` and ``to_topic`` take all modes."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        from ottla.spark.rows import RowsWritten, write_rows

        return RowsWritten(write_rows(iterator, self._options))
