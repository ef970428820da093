"""Rows of a small batch that are read by the driver-side process of a streaming read, so that no task has to run Python.

A task in Python costs some 15 ms, whatever it reads, and 60 where Spark talks to it over TCP. PySpark has a way for rows to travel with the
plan of a batch: that of its simple readers (``SimpleDataSourceStreamReader``). The JVM keeps such rows as a block; a task that does not
find the block reads them as it would have without. So whatever goes wrong here is left to the task, which waits longer and says what is
wrong. For more than ``ROWS_MAX`` rows this way is the slower one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import datasource_internal

from ottla.errors import KafkaError
from ottla.spark.planning import BYTES_PER_TASK_MIN, OffsetRanges
from ottla.spark.reading import DataLossError, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX: Final = 4_000
PATIENCE_MS: Final = 1_000
REMEMBERED: Final = 0.8
"""Of the size of an offset, with each batch that is too large by it: records may have become smaller."""
SIMPLE: Final[type | None] = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)
"""The class of readers whose rows PySpark asks for (``partitions_func``, in 4.2 and 4.3). Without it tasks read all rows."""


class Prefetch:
    """The rows of one batch, between its plan and the question for them. A small batch has ``ROWS_MAX`` at most, in one task."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._bytes_per_offset = 0.0
        self._rows: list[pa.RecordBatch] | None = None

    def __bool__(self) -> bool:
        """Returns True while rows wait to be asked for."""
        return self._rows is not None

    def plan(self, tasks: list[OffsetRanges]) -> None:
        """Reads the rows of the batch when it is small; there are none after it otherwise."""
        self._rows = None
        count = sum(piece.size for task in tasks for piece in task.ranges)
        if SIMPLE is None or len(tasks) != 1 or count > ROWS_MAX:
            return
        if count * self._bytes_per_offset <= BYTES_PER_TASK_MIN:
            self._rows = self._read(tasks[0])
        else:
            self._bytes_per_offset *= REMEMBERED

    def take(self) -> list[pa.RecordBatch]:
        """Returns the rows of the batch that was planned last, once."""
        rows, self._rows = self._rows, None
        assert rows is not None, "the plan of the batch has its rows"
        return rows

    def _read(self, task: OffsetRanges) -> list[pa.RecordBatch] | None:
        rows: list[pa.RecordBatch] = []
        row_count = byte_count = 0
        try:
            for batch in read_ranges(task, self._options, self._schema, within_ms=PATIENCE_MS):
                rows.append(batch)
                row_count, byte_count = row_count + batch.num_rows, byte_count + batch.nbytes
                self._bytes_per_offset = byte_count / row_count
                if byte_count > BYTES_PER_TASK_MIN:
                    return None
        except (KafkaError, DataLossError, TimeoutError):
            return None
        return rows
