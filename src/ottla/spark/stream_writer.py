"""``writeStream.format("ottla")``: exactly once or at least once, in append mode, the only one that Spark lets Python sinks have.

Spark makes a writer for each batch in the driver's Python processes, runs ``write`` in tasks and ``commit`` in one process for all
batches. Exactly once, tasks write nothing: their rows travel in the messages of the commit, whose process has the application's producer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.driver_sink import Application
    from ottla.spark.group_offsets import GroupOffsets

MESSAGE_BYTES_MAX: Final = 128 << 20
_APPLICATIONS: Final[dict[tuple[int, tuple[tuple[str, str], ...]], Application]] = {}
_OFFSETS: Final[dict[tuple[int, tuple[tuple[str, str], ...]], GroupOffsets]] = {}


class Rows(WriterCommitMessage):
    """The rows of a task, as an Arrow stream; None without any."""

    def __init__(self, stream: bytes | None) -> None:
        self.stream = stream


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write whose tasks deliver their rows, at least once."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        from ottla.spark.rows import RowsWritten, write_rows
        from ottla.spark.worker_task import worker_task

        with worker_task():
            return RowsWritten(write_rows(iterator, self._options))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits the offsets of the written rows in the group that ``app`` names, where it does and the checkpoint is on this machine."""
        from ottla.spark.checkpoint import is_local, read_from
        from ottla.spark.options import CHECKPOINT

        location = self._options.get(CHECKPOINT)
        if "app" in self._options and location is not None and is_local(location):
            _offsets_of(self._options).commit(read_from(location, batchId), batchId)


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write whose commit delivers all rows in one transaction; ``to_topic`` and ``sink`` take all modes."""

    def __init__(self, options: dict[str, str]) -> None:
        from ottla.spark.driver_sink import app_of

        app_of(options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        """Returns the task's rows, for the driver. BatchTooLargeError for more of them than a message carries."""
        import pyarrow as pa

        from ottla.spark.driver_sink import BatchTooLargeError
        from ottla.spark.rows import columns_of

        sink = pa.BufferOutputStream()
        stream: pa.RecordBatchStreamWriter | None = None
        for batch in iterator:
            rows = batch.select(columns_of(batch.schema.names))
            if stream is None:
                stream = pa.ipc.new_stream(sink, rows.schema)
            stream.write_batch(rows)
            if sink.tell() > MESSAGE_BYTES_MAX:
                raise BatchTooLargeError(
                    f"a task has more than {MESSAGE_BYTES_MAX >> 20} MiB of rows for the driver, which writes them exactly once: use "
                    'to_topic(...), lower maxOffsetsPerTrigger of the source, or let tasks write, with delivery="at_least_once"'
                )
        if stream is None:
            return Rows(None)
        stream.close()
        return Rows(sink.getvalue().to_pybytes())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits the rows and the offsets of the batch together, unless that was done before."""
        from ottla.spark.checkpoint import read_from
        from ottla.spark.options import CHECKPOINT

        planned = read_from(self._options.get(CHECKPOINT), batchId)
        _application_of(self._options).deliver(planned, batchId, lambda: list(_batches_of(messages)))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: nothing is written before a commit, and one that failed has aborted what it could."""


def _application_of(options: dict[str, str]) -> Application:
    """Returns the process's application of these options: it keeps its producer from batch to batch."""
    from ottla.spark.driver_sink import Application

    key = (os.getpid(), tuple(sorted(options.items())))
    found = _APPLICATIONS.get(key)
    if found is None:
        found = _APPLICATIONS[key] = Application(options)
    return found


def _offsets_of(options: dict[str, str]) -> GroupOffsets:
    """Returns the process's group offsets of these options."""
    from ottla.spark.group_offsets import GroupOffsets

    key = (os.getpid(), tuple(sorted(options.items())))
    found = _OFFSETS.get(key)
    if found is None:
        found = _OFFSETS[key] = GroupOffsets(options, options["app"])
    return found


def _batches_of(messages: list[WriterCommitMessage | None]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for message in messages:
        assert isinstance(message, Rows), "each task has returned its rows"
        if message.stream is not None:
            yield from pa.ipc.open_stream(message.stream)
