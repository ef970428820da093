"""PySpark's writer of a stream that is exactly once: it does not start without a checkpoint that outlives the query.

Spark makes a temporary checkpoint for a ``foreachBatch`` that names none, and deletes it. The next run would have another one, and stop.
With ``spark.sql.streaming.checkpointLocation`` alone the directory of a query without a name is a new one each time, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.spark.kept_state import check_state
from ottla.spark.options import CHECKPOINT, invalid
from ottla.spark.pipelines import runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

DIRECTORIES: Final = "spark.sql.streaming.checkpointLocation"
NOT_STARTED: Final = "a pipeline returns its writer and leaves it to the runner to start it: leave .start() out"


class CheckpointedWriter(DataStreamWriter):
    """The writer of a classic session, which knows whether it was given a checkpoint."""

    def __init__(self, frame: DataFrame) -> None:
        super().__init__(frame)
        self._location: str | None = None
        self._has_name = False

    def option(self, key: str, value: Any) -> DataStreamWriter:
        self._note({key: value})
        return super().option(key, value)

    def options(self, **options: Any) -> DataStreamWriter:
        self._note(options)
        return super().options(**options)

    def queryName(self, queryName: str) -> DataStreamWriter:
        self._has_name = True
        return super().queryName(queryName)

    def start(self, *arguments: Any, **options: Any) -> StreamingQuery:
        """Starts the query. KafkaError INVALID_CONFIG where its checkpoint would be deleted with it."""
        if runner() is not None:
            raise invalid(NOT_STARTED)
        self._note(options)
        is_named = self._has_name or options.get("queryName") is not None
        if self._location is None and not (is_named and self._spark.conf.get(DIRECTORIES, None)):
            raise invalid(
                f'exactly once needs a checkpoint that outlives the query: give the writer .option("{CHECKPOINT}", DIRECTORY), or to_topic '
                'delivery="at_least_once"'
            )
        if self._location is not None:
            check_state(self._df, self._location)
        return super().start(*arguments, **options)

    def _note(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if name.lower() == CHECKPOINT.lower() and value is not None:
                self._location = str(value)
