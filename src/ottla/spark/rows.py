"""A task's writing: rows of Arrow batches to record batches, to the partitions' leaders.

The columns have the names of Spark's Kafka sink: value (string or binary), and key, topic, partition, headers and timestamp where there
are such columns; others are ignored, so that what a source has read can be written as it is. A key's murmur2 picks the partition, as
with every Kafka client; rows without one stay together for about the length of a record batch. Rows of one partition keep their order.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.datasource import WriterCommitMessage

from ottla.spark.delivery import Delivery
from ottla.spark.key_hashes import positive_hashes
from ottla.spark.link import link_for
from ottla.spark.options import invalid
from ottla.spark.row_slice import RowSlice
from ottla.types import Headers, TopicPartition

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql.types import StructType

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
NO_TIME_US: Final = -1_000
"""The time of a record that was written without one (-1 ms), as Spark has it."""
_TYPES: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS_TYPE,),
    "timestamp": ("timestamp",),
}


class RowsWritten(WriterCommitMessage):
    """The number of rows that a task has written."""

    def __init__(self, row_count: int) -> None:
        self.row_count = row_count


def check_columns(schema: StructType, options: Mapping[str, str]) -> None:
    """Raises KafkaError INVALID_CONFIG when rows of this schema cannot be written with these options."""
    for name in ("kafka.acks", "kafka.enable.idempotence"):
        if options.get(name, "all").lower() not in ("all", "-1", "true"):
            raise invalid(f"{name}={options[name]} is refused: the sink is idempotent, which needs acks=all")
    found = {field.name: field.dataType.simpleString() for field in schema}
    for name, kinds in _TYPES.items():
        if found.get(name, kinds[0]) not in kinds:
            as_text = f": .withColumn({name!r}, F.col({name!r}).cast('string')), or to_topic(...)" if name in ("key", "value") else ""
            raise invalid(f"column {name} is {found[name]}; it must be {' or '.join(kinds)}{as_text}")
    if "value" not in found:
        way_out = "name one so, as .select(F.to_json(F.struct('*')).alias('value')) does; of a stream to_topic(...) does it"
        raise invalid(f"there is no column value among {', '.join(found)}: {way_out}")
    if topic_of(options) is None and "topic" not in found:
        raise invalid("no topic: give one (the option topic, to_topic's second argument), or a column topic, as route(...) makes it")
    ignored = [name for name in found if name not in _TYPES]
    if ignored:
        _warn_of_ignored(", ".join(ignored))


@functools.cache
def _warn_of_ignored(names: str) -> None:
    """Warns once in a process, not in each batch."""
    warnings.warn(f"columns {names} are not written: a record has {', '.join(_TYPES)}; put them into value with to_json", stacklevel=3)


def columns_of(names: list[str]) -> list[str]:
    """Returns the columns that a record has."""
    return [name for name in names if name in _TYPES]


def topic_of(options: Mapping[str, str]) -> str | None:
    return options.get("topic") or options.get("path")


def write_rows(batches: Iterator[pa.RecordBatch], options: Mapping[str, str]) -> int:
    """Writes every row, and returns how many were acknowledged. KafkaError when one could not be delivered."""
    delivery = Delivery(link_for(options), options)
    writer = RowWriter(delivery, topic_of(options))
    try:
        row_count = 0
        for batch in batches:
            writer.write(batch)
            row_count += batch.num_rows
        delivery.flush()
    finally:
        delivery.stop()
    return row_count


class RowDelivery(Protocol):
    """The destination of rows: ``Delivery``, or ``TransactionalDelivery``."""

    @property
    def batch_bytes(self) -> int:
        """Of a record batch, about."""

    def partition_counts(self, topics: list[str], *, is_new: bool = False) -> list[int]:
        """Returns how many partitions each topic has; with ``is_new``, as of now."""

    def any_partition(self, topic: str, count: int) -> int:
        """Returns the partition that records without a key go to at present."""

    def add(self, rows: RowSlice) -> None:
        """Starts to send the rows."""


class RowWriter:
    """A writer of columns: it orders an Arrow batch's rows by partition, and encodes each partition's at once."""

    def __init__(self, delivery: RowDelivery, topic: str | None) -> None:
        self._delivery = delivery
        self._topic = topic
        self._row_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds the rows to the batches of their partitions, in their order."""
        self._check(batch)
        self._row_count += batch.num_rows
        rows_at_once = batch.num_rows
        if _is_free(batch).any():
            # Free rows go to one partition for about the length of a record batch.
            rows_at_once = max(1, batch.num_rows * self._delivery.batch_bytes // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows_at_once or 1):
            self._write(batch.slice(start, rows_at_once))

    def _write(self, batch: pa.RecordBatch) -> None:
        import numpy as np
        import pyarrow as pa

        topics, codes = self._topics(batch)
        counts = np.array(self._delivery.partition_counts(topics))
        if len(_misplaced(batch, codes, counts)):
            counts = np.array(self._delivery.partition_counts(topics, is_new=True))
        partitions = self._partitions(batch, topics, codes, counts)
        places = (np.cumsum(counts) - counts)[codes] + partitions  # one number for each partition of each topic
        if counts.sum() < 1 << 16:
            places = places.astype(np.uint16)  # which numpy sorts by radix
        order = np.argsort(places, kind="stable")
        columns = {name: batch.column(name).take(pa.array(order)) for name in {"key", "value", "headers"} & set(batch.schema.names)}
        values = _bytes_of(columns["value"])
        keys: list[bytes | None] = _bytes_of(columns["key"]) if "key" in columns else [None] * batch.num_rows
        headers = [_headers_of(row) for row in columns["headers"].to_pylist()] if "headers" in columns else None
        times = _times_of(batch)[order]
        starts = [0, *(np.flatnonzero((np.diff(places[order]) != 0) | (np.diff(times) != 0)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            row = order[start]
            target = TopicPartition(topics[codes[row]], int(partitions[row]))
            self._delivery.add(RowSlice(target, keys, values, headers, start, end, int(times[start])))

    def _check(self, batch: pa.RecordBatch) -> None:
        """Raises KafkaError for a header without a key, or a time that no record may have, with its row and column."""
        import numpy as np
        import pyarrow.compute as pc

        if "timestamp" in batch.schema.names:
            times = _times_of(batch)
            wrong = np.flatnonzero(times < 0)
            if len(wrong):
                raise invalid(f"row {self._row_count + wrong[0]} of the task: column timestamp is {times[wrong[0]]} ms, before 1970")
        if "headers" in batch.schema.names:
            column = batch.column("headers")
            found = pc.list_flatten(column)
            if found.null_count or found.field("key").null_count:
                wrong = np.flatnonzero(~(_is_there(found) & _is_there(found.field("key"))))
                row = self._row_count + int(pc.list_parent_indices(column)[wrong[0]].as_py())
                raise invalid(f"row {row} of the task: column headers has a header whose key is null")

    def _topics(self, batch: pa.RecordBatch) -> tuple[list[str], npt.NDArray[Any]]:
        """Returns the topics, and for each row the index of its own."""
        import numpy as np

        if self._topic is not None:
            return [self._topic], np.zeros(batch.num_rows, np.int64)
        column = batch.column("topic")
        if column.null_count:
            raise invalid("a row has no topic: its column topic is null, and the option topic is not given")
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()

    def _partitions(self, batch: pa.RecordBatch, topics: list[str], codes: npt.NDArray[Any], counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns each row's partition: named by the row, else by the hash of its key, else any."""
        import numpy as np

        names = batch.schema.names
        is_free = _is_free(batch)
        found = np.zeros(batch.num_rows, np.int64)
        if "key" in names:
            found = positive_hashes(_as_binary(batch.column("key"))) % counts[codes]
        for code in np.unique(codes[is_free]).tolist():
            found[is_free & (codes == code)] = self._delivery.any_partition(topics[code], int(counts[code]))
        if "partition" in names:
            wrong = _misplaced(batch, codes, counts)
            column = batch.column("partition")
            if len(wrong):
                code = codes[wrong[0]]
                raise invalid(_no_partition(column[wrong[0]].as_py(), topics[code], int(counts[code])))
            found = np.where(_is_there(column), column.fill_null(0).to_numpy(zero_copy_only=False), found)
        return found


def _no_partition(partition: int, topic: str, count: int) -> str:
    text = f"a row has partition {partition}; topic {topic!r} has {count} partition{'' if count == 1 else 's'}"
    way_out = "leave the column partition out (.drop('partition')), and keys place the rows"
    if partition < 0:
        return f"{text}: {way_out}"
    return f"{text}: {way_out}, or give the topic as many (ottla topic add-partitions {topic} -p {partition + 1})"


def _misplaced(batch: pa.RecordBatch, codes: npt.NDArray[Any], counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the rows that name a partition which their topic does not have."""
    import numpy as np

    if "partition" not in batch.schema.names:
        return np.empty(0, np.int64)
    wanted = batch.column("partition").fill_null(0).to_numpy(zero_copy_only=False)
    return np.flatnonzero((wanted < 0) | (wanted >= counts[codes]))


def _is_free(batch: pa.RecordBatch) -> npt.NDArray[Any]:
    """Returns which rows have neither a key nor a partition."""
    import numpy as np

    is_free = np.ones(batch.num_rows, bool)
    for name in {"key", "partition"} & set(batch.schema.names):
        is_free &= ~_is_there(batch.column(name))
    return is_free


def _is_there(column: pa.Array) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _bytes_of(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = _as_binary(column).to_pylist()
    return found


def _as_binary(column: pa.Array) -> pa.Array:
    """Returns a string or binary column as binary; strings as UTF-8, which is how Arrow has them."""
    import pyarrow as pa

    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.view(pa.large_binary())
    return column


def _times_of(batch: pa.RecordBatch) -> npt.NDArray[Any]:
    """Returns the time of each row in milliseconds; now, where it has none: where it is null, or -1, as of a record without a time."""
    import numpy as np
    import pyarrow as pa

    now_ms = time.time_ns() // 1_000_000
    if "timestamp" not in batch.schema.names:
        return np.full(batch.num_rows, now_ms, np.int64)
    column = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).view(pa.int64())
    found: npt.NDArray[Any] = column.fill_null(NO_TIME_US).to_numpy(zero_copy_only=False)
    return np.where(found == NO_TIME_US, now_ms, found // 1000)


def _headers_of(row: list[dict[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in row or ())
