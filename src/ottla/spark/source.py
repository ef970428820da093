"""``format("ottla")``: topics as DataFrames, and DataFrames to topics, as Spark's Python Data Source.

Options and columns are the same as in Spark's own Kafka connector (``options.TABLE``, ``columns.COLUMN_TYPES``), so a query moves
between the two by one word. Spark imports this module in each of its Python processes: everything heavy is imported in methods.

Readers and writers are made in the driver's Python processes and pickled; ``read`` and ``write`` run in workers. So constructors
only keep what they get.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla.spark.batch_reader import TopicReader
    from ottla.spark.refused_reader import RefusedReader
    from ottla.spark.stream_reader import TopicStreamReader


class OttlaDataSource(DataSource):
    """The data source that Spark makes for each ``format("ottla")``; discovered through the module ``pyspark_ottla``."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        from ottla.spark.columns import COLUMN_TYPES
        from ottla.spark.options import boolean

        with_headers = boolean({key.lower(): value for key, value in self.options.items()}, "includeheaders", False)
        return ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items() if with_headers or name != "headers")

    def reader(self, schema: StructType) -> TopicReader:
        from ottla.spark.batch_reader import FilteredTopicReader, TopicReader
        from ottla.spark.options import BATCH, boolean
        from ottla.spark.planning import FILTERS_VARIABLE
        from ottla.spark.reading_options import reading_options

        options = reading_options(self.options, BATCH)
        # Spark fails a reader that takes filters while it gives none, so each session has its own kind.
        pushes = boolean(options, "pushFilters", os.environ.get(FILTERS_VARIABLE) == "true")
        return (FilteredTopicReader if pushes else TopicReader)(options, schema)

    def streamReader(self, schema: StructType) -> TopicStreamReader | RefusedReader:
        from ottla.errors import KafkaError
        from ottla.spark.options import STREAM
        from ottla.spark.reading_options import reading_options
        from ottla.spark.refused_reader import RefusedReader
        from ottla.spark.stream_reader import TopicStreamReader

        try:
            return TopicStreamReader(reading_options(self.options, STREAM), schema)
        except KafkaError as error:
            return RefusedReader(error)  # PySpark would hide the error of a reader that is not made behind one of its own

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        if overwrite:
            from ottla.spark.options import invalid

            raise invalid('mode("overwrite") is refused: a topic can only be appended to; use mode("append")')
        options = self._writing_options(schema)
        if options.get("delivery") == "exactly_once":
            from ottla.spark.options import invalid

            raise invalid("delivery=exactly_once is for streams: a batch has no checkpoint that would say what it has written")
        return TopicWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from ottla.spark.options import DELIVERIES, invalid, is_mirrored
        from ottla.spark.stream_writer import ExactlyOnceStreamWriter, TopicStreamWriter

        if overwrite:
            way_out = "use to_topic(...) or foreachBatch(sink(...)) of ottla.spark, which take every mode"
            raise invalid(f'outputMode("complete") is refused: Spark lets format("ottla") append only; {way_out}')
        options = self._writing_options(schema)
        if is_mirrored(options):
            raise invalid("checkpoint=topic is for to_topic(...) and foreachBatch(sink(...)), which restore one before the query starts")
        is_exactly_once = options.get("delivery", DELIVERIES[0]) == DELIVERIES[0]
        return (ExactlyOnceStreamWriter if is_exactly_once else TopicStreamWriter)(options)

    def _writing_options(self, schema: StructType) -> dict[str, str]:
        from ottla.spark.options import SINK, checked
        from ottla.spark.rows import check_columns
        from ottla.spark.security import security_of, settings_of

        options = checked(self.options, SINK)
        check_columns(schema, options)
        security_of(settings_of(options))  # before a task looks at its stores
        return options


class TopicWriter(DataSourceArrowWriter):
    """A batch write, at least once: a task that fails after sending is run again."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        from ottla.spark.rows import RowsWritten, write_rows
        from ottla.spark.worker_task import worker_task

        with worker_task():
            return RowsWritten(write_rows(iterator, self._options))
