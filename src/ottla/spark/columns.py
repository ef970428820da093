"""From the bytes of record batches to columns, without a Python object for each record.

The work is in two steps. ``Columns.add`` walks a batch's records once and puts keys, values, offsets and timestamps into lists
of their own; topic, partition and timestamp type, which a batch has once, are kept as runs. ``Columns.take`` turns what has
been gathered into one Arrow record batch: numbers through numpy, keys and values as one buffer with offsets.

``_walk`` is plain typed Python over bytes and lists, with the varints of one byte decoded in place, so that it may also be
compiled. A column that is not wanted is neither sliced nor built. Only ``DecodeError`` escapes, as in ``records.iteration``,
whose rules these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, BatchHeader
from ottla.records.compression import decompress
from ottla.records.iteration import Headers, decode_records

if TYPE_CHECKING:
    import pyarrow as pa

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
BYTES_MAX: Final = 1 << 20
_VARINT_BITS_MAX: Final = 63


class Columns:
    """Rows gathered for the columns of one Arrow schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        names = set(schema.names)
        self._wants_keys, self._wants_values = "key" in names, "value" in names
        self._wants_offsets, self._wants_timestamps = "offset" in names, "timestamp" in names
        self._wants_headers = "headers" in names
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
        return self.row_count >= ROWS_MAX or self.size_bytes >= BYTES_MAX

    def add(self, topic: str, partition: int, data: Buffer, position: int, header: BatchHeader, *, start: int, end: int) -> None:
        """The batch's records with ``start <= offset < end`` are rows."""
        import numpy as np

        view = memoryview(data)[position + HEADER_SIZE : position + header.size_bytes]
        payload = bytes(decompress(header.codec, view))
        low, high = start - header.base_offset, end - header.base_offset
        deltas: list[int] = []
        timestamps: list[int] = []
        headers: list[Headers] = []
        try:
            has_headers = _walk(
                payload,
                header.count,
                max(low, 0),
                min(high - 1, header.last_offset_delta),
                deltas,
                timestamps,
                self._keys if self._wants_keys else None,
                self._values if self._wants_values else None,
            )
        except IndexError:
            raise DecodeError(f"the records of offset {header.base_offset} end inside a record") from None
        if not deltas:
            return
        if self._wants_headers:
            if has_headers:
                headers = [record.headers for record in decode_records(payload, header) if start <= record.offset < end]
            self._headers += headers or [()] * len(deltas)
        if self._wants_offsets:
            self._offsets.append(np.array(deltas, np.int64) + header.base_offset)
        if self._wants_timestamps:
            if header.is_log_append_time:
                self._timestamps.append(np.full(len(deltas), header.max_timestamp, np.int64))
            else:
                self._timestamps.append(np.array(timestamps, np.int64) + header.base_timestamp)
        self._runs.append((topic, partition, 1 if header.is_log_append_time else 0, len(deltas)))
        self.row_count += len(deltas)
        self.size_bytes += len(payload)

    def take(self) -> pa.RecordBatch:
        """What was gathered, as one record batch; there is nothing gathered afterwards."""
        import pyarrow as pa

        batch = pa.RecordBatch.from_arrays([self._array(field) for field in self._schema], schema=self._schema)
        self._clear()
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
            return pa.array(_joined(self._timestamps) * 1000, pa.int64()).view(field.type)
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
        """Records without headers have an empty list, never null: a JVM copies null lists in quadratic time."""
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


def _walk(
    data: bytes,
    count: int,
    delta_min: int,
    delta_max: int,
    deltas: list[int],
    timestamps: list[int],
    keys: list[bytes | None] | None,
    values: list[bytes | None] | None,
) -> bool:
    """Adds each record whose offset delta is wanted to the lists (timestamps as deltas); whether any record has headers."""
    position = 0
    end = len(data)
    has_headers = False
    while count > 0:
        count -= 1
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        record_end = position + (number >> 1)
        if number & 1 or record_end > end:
            raise DecodeError(f"a record at byte {position} says it ends at byte {record_end} of {end}")
        number = data[position + 1]  # the byte before it are the attributes: none is defined
        position += 2
        if number >= 0x80:
            number, position = _varint(data, position, number)
        timestamp = (number >> 1) ^ -(number & 1)
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        delta = (number >> 1) ^ -(number & 1)
        if delta < delta_min or delta > delta_max:
            position = record_end
            continue
        deltas.append(delta)
        timestamps.append(timestamp)
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        if number == 1:
            if keys is not None:
                keys.append(None)
        else:
            field_end = position + (number >> 1)
            if number & 1 or field_end > record_end:
                raise DecodeError(f"a key at byte {position} ends at byte {field_end}, its record at {record_end}")
            if keys is not None:
                keys.append(data[position:field_end])
            position = field_end
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        if number == 1:
            if values is not None:
                values.append(None)
        else:
            field_end = position + (number >> 1)
            if number & 1 or field_end > record_end:
                raise DecodeError(f"a value at byte {position} ends at byte {field_end}, its record at {record_end}")
            if values is not None:
                values.append(data[position:field_end])
            position = field_end
        if data[position]:
            has_headers = True
        elif position + 1 != record_end:
            raise DecodeError(f"a record ends at byte {position + 1}, its length says {record_end}")
        position = record_end
    if position != end:
        raise DecodeError(f"{end - position} bytes follow the last record of a batch")
    return has_headers


def _varint(data: bytes, position: int, first: int) -> tuple[int, int]:
    """The still zig-zag number whose first byte was ``first``, and the position after it."""
    number = first & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise DecodeError("a varint has more than ten bytes")
    if number >> 64:
        raise DecodeError("a varint has more than 64 bits")
    return number, position
