"""A batch read of topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from ottla.spark.columns import arrow_schema
from ottla.spark.lookup import Lookup
from ottla.spark.narrowing import Narrowing, narrowing_of
from ottla.spark.offsets import ending_bound, falls_back, starting_bound
from ottla.spark.planning import OffsetRanges, planned, ranges_between
from ottla.spark.reading import read_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType


class TopicReader(DataSourceReader):
    """A batch read. Its end is settled when it is planned: a topic joined to a stream as a table stays as it was at the start."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[OffsetRanges]:
        arrow_schema(self._schema)
        first, last = starting_bound(self._options, is_stream=False), ending_bound(self._options)
        lookup = Lookup(self._options)
        partitions = lookup.partitions(must_exist=True)
        start = lookup.resolve(first, partitions, none_is_latest=falls_back(self._options))
        end = lookup.resolve(last, partitions, none_is_latest=True)
        if self._narrowing is not None:
            start, end = self._narrowing.narrowed(start, end, lookup)
        return planned(ranges_between(start, end), self._options, lookup.weigh) or [OffsetRanges(())]

    def read(self, partition: OffsetRanges) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return read_ranges(partition, self._options, arrow_schema(self._schema))


class FilteredTopicReader(TopicReader):
    """A batch read of what the query's filters leave."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Spark applies all of them to the rows besides."""
        self._narrowing = narrowing_of(filters)
        return filters
