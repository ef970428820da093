"""From the bytes of record batches to columns, without a Python object for each record.

The work is in two steps. ``Columns.add`` lets the record kernel walk a batch's records once and put keys, values, offsets and
timestamps into lists of their own; topic, partition and timestamp type, which a batch has once, are kept as runs. ``Columns.take``
turns what has been gathered into one Arrow record batch: numbers through numpy, keys and values as one buffer with offsets.

A column that is not wanted is neither sliced nor built. Only ``DecodeError`` escapes, as in ``records.iteration``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, BatchHeader
from ottla.records.compression import decompress
from ottla.records.iteration import check_end
from ottla.records.kernel import decode_columns
from ottla.spark.options import invalid
from ottla.types import Headers

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMN_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns of Spark's own Kafka connector, in its order; types as Spark's ``simpleString`` writes them."""

ROWS_MAX: Final = 10_000
ROWS_FIRST: Final = 2_000
"""Of the first record batch, which Spark works at while the next one is made; each has twice as many as the one before."""
BYTES_MAX: Final = 1 << 20
TIME_MS_MAX: Final = (2**63 - 1) // 1000
NO_TIME: Final = -(2**63)
"""In place of a time that Spark cannot have; no record's milliseconds make it."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns Arrow's form of the schema, as Spark will compare it. KafkaError INVALID_CONFIG for columns that topics do not have."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema:
        kind = COLUMN_TYPES.get(field.name)
        if kind is None:
            raise invalid(f"a topic has no column {field.name!r}, only {', '.join(COLUMN_TYPES)}")
        if field.dataType.simpleString() != kind:
            raise invalid(f"column {field.name} is {kind}, not {field.dataType.simpleString()}")
    return to_arrow_schema(schema, timezone="UTC")


class Columns:
    """Rows gathered for the columns of one Arrow schema."""

    def __init__(self, schema: pa.Schema, *, fails_on_times: bool = True) -> None:
        self._schema = schema
        self._fails_on_times = fails_on_times  # that Spark cannot have; they are null otherwise
        names = set(schema.names)
        self._wants_keys, self._wants_values = "key" in names, "value" in names
        self._wants_offsets, self._wants_timestamps = "offset" in names, "timestamp" in names
        self._wants_headers = "headers" in names
        self._rows_max = ROWS_FIRST
        self._clear()

    def _clear(self) -> None:
        self.row_count = 0
        self.size_bytes = 0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[Any] = []  # numpy arrays, one for each batch, as are the timestamps
        self._timestamps: list[Any] = []
        self._headers: list[Headers] = []
        self._runs: list[tuple[str, int, int, int]] = []  # topic, partition, timestamp type, rows

    @property
    def is_full(self) -> bool:
        return self.row_count >= self._rows_max or self.size_bytes >= BYTES_MAX

    def add(self, topic: str, partition: int, data: Buffer, position: int, header: BatchHeader, *, start: int, end: int) -> None:
        """Adds the batch's records with ``start <= offset < end`` as rows."""
        import numpy as np

        view = memoryview(data)[position + HEADER_SIZE : position + header.size_bytes]
        payload = decompress(header.codec, view)
        offsets: list[int] = []
        times: list[int] = []
        end_of_records = decode_columns(
            payload,
            0,
            header.count,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            last_delta=header.last_offset_delta,
            delta_min=min(max(start - header.base_offset, 0), header.last_offset_delta + 1),
            delta_max=max(min(end - 1 - header.base_offset, header.last_offset_delta), -1),
            offsets=offsets,
            times=times,
            keys=self._keys if self._wants_keys else None,
            values=self._values if self._wants_values else None,
            headers=self._headers if self._wants_headers else None,
        )
        check_end(payload, end_of_records, header)
        if not offsets:
            return
        if header.is_log_append_time:
            times = [header.max_timestamp] * len(times)
        try:
            if self._wants_offsets:
                self._offsets.append(np.array(offsets, np.int64))
            if self._wants_timestamps:
                self._timestamps.append(self._in_microseconds(np.array(times, np.int64), offsets, f"{topic}-{partition}"))
        except OverflowError:
            raise DecodeError(f"the batch of offset {header.base_offset} has an offset or a time of more than 64 bits") from None
        self._runs.append((topic, partition, 1 if header.is_log_append_time else 0, len(offsets)))
        self.row_count += len(offsets)
        self.size_bytes += len(payload)

    def _in_microseconds(self, times_ms: npt.NDArray[Any], offsets: list[int], partition: str) -> npt.NDArray[Any]:
        """Returns the times as Spark has them. For one that it cannot have, ``NO_TIME``, or a DecodeError with its row and column."""
        import numpy as np

        is_outside = (times_ms > TIME_MS_MAX) | (times_ms < -TIME_MS_MAX)
        if self._fails_on_times and is_outside.any():
            row = np.flatnonzero(is_outside)[0]
            text = f"column timestamp: the record of {partition} at offset {offsets[row]} has a time of {times_ms[row]} ms"
            way_out = 'leave the column out with .schema("key binary, value binary"), or set failOnTimestamp=false, which makes it null'
            raise DecodeError(f"{text}, which Spark cannot have; {way_out}")
        return np.where(is_outside, NO_TIME, times_ms * 1000)

    def take(self) -> pa.RecordBatch:
        """Returns what was gathered, as one record batch; there is nothing gathered afterwards."""
        import pyarrow as pa

        batch = pa.RecordBatch.from_arrays([self._array(field) for field in self._schema], schema=self._schema)
        self._clear()
        self._rows_max = min(2 * self._rows_max, ROWS_MAX)
        return batch

    def _array(self, field: pa.Field) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        if field.name == "key":
            return pa.array(self._keys, field.type)
        if field.name == "value":
            return pa.array(self._values, field.type)
        if field.name == "offset":
            return pa.array(_joined(self._offsets), field.type)
        if field.name == "timestamp":
            times = _joined(self._timestamps)
            return pa.array(times, pa.int64(), mask=times == NO_TIME).view(field.type)
        if field.name == "headers":
            return self._header_array(field.type)
        counts = [run[3] for run in self._runs]
        if field.name == "topic":
            names = list(dict.fromkeys(run[0] for run in self._runs))
            indexes = np.repeat(np.array([names.index(run[0]) for run in self._runs], np.int32), counts)
            return pa.DictionaryArray.from_arrays(indexes, pa.array(names, field.type)).dictionary_decode()
        index = 1 if field.name == "partition" else 2
        return pa.array(np.repeat(np.array([run[index] for run in self._runs], np.int32), counts), field.type)

    def _header_array(self, kind: pa.ListType) -> pa.Array:
        """Returns the headers. Records without any have an empty list, never null: a JVM copies null lists in quadratic time."""
        import numpy as np
        import pyarrow as pa

        lengths = np.fromiter(map(len, self._headers), np.int32, len(self._headers))
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        flat = [header for headers in self._headers for header in headers]
        struct = kind.value_type
        keys = pa.array([key for key, _ in flat], struct.field(0).type)
        values = pa.array([value for _, value in flat], struct.field(1).type)
        items = pa.StructArray.from_arrays([keys, values], fields=[struct.field(0), struct.field(1)])
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=kind)


def _joined(parts: list[Any]) -> Any:
    import numpy as np

    return np.concatenate(parts) if parts else np.empty(0, np.int64)
