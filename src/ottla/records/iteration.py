"""The records of a batch, one by one, as the record kernel reads them.

Only ``DecodeError`` escapes: each length is checked against the bytes left, each record must fill the length it declares, the
batch must hold exactly the records that it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, BatchHeader, read_header
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from ottla.records.kernel import decode_columns
from ottla.types import Headers

RECORDS_AT_ONCE: Final = 256


class Record(msgspec.Struct, gc=False):
    """One record as its consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordColumns(NamedTuple):
    """Records as columns of one length."""

    offsets: list[int]
    times_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]


def iterate_records(data: Buffer, position: int = 0, *, limit: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Returns the records of the batch at ``position``, decompressed to at most ``limit`` bytes. The CRC is not looked at."""
    return list(walk_records(data, position, limit=limit))


def walk_records(data: Buffer, position: int = 0, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yields as ``iterate_records``, some at a time: a batch of many small records costs no memory for all of them."""
    header = read_header(data, position)
    return _decode(_decompressed(data, position, header, limit), header)


def read_columns(data: Buffer, position: int, header: BatchHeader, *, start: int) -> RecordColumns:
    """Returns the records with offsets from ``start`` on of the batch at ``position``, as columns."""
    payload = _decompressed(data, position, header, DECOMPRESSED_BYTES_MAX)
    columns, end = _some_columns(payload, 0, header.count, header, start - header.base_offset)
    check_end(payload, end, header)
    return columns


def _decompressed(data: Buffer, position: int, header: BatchHeader, limit: int) -> bytes:
    end = position + header.size_bytes
    if end > len(data):
        raise DecodeError(f"the batch at byte {position} has {header.size_bytes} bytes, {len(data) - position} are left")
    return decompress(header.codec, memoryview(data)[position + HEADER_SIZE : end], limit)


def _decode(data: bytes, header: BatchHeader) -> Iterator[Record]:
    position = 0
    remaining = header.count
    while remaining > 0:
        columns, position = _some_columns(data, position, min(remaining, RECORDS_AT_ONCE), header, 0)
        remaining -= RECORDS_AT_ONCE
        yield from map(Record, *columns)
    check_end(data, position, header)


def _some_columns(data: bytes, position: int, count: int, header: BatchHeader, first_delta: int) -> tuple[RecordColumns, int]:
    """Returns the records with offset deltas from ``first_delta`` on among the ``count`` at ``position``; and the position after all."""
    last_delta = header.last_offset_delta
    columns = RecordColumns([], [], [], [], [])
    position = decode_columns(
        data,
        position,
        count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        last_delta=last_delta,
        delta_min=min(max(first_delta, 0), last_delta + 1),
        delta_max=last_delta,
        offsets=columns.offsets,
        times=columns.times_ms,
        keys=columns.keys,
        values=columns.values,
        headers=columns.headers,
    )
    if header.is_log_append_time:
        columns.times_ms[:] = [header.max_timestamp] * len(columns.times_ms)
    return columns, position


def check_end(data: bytes, position: int, header: BatchHeader) -> None:
    """Raises DecodeError when the batch's records, which end at ``position``, are not all of its decompressed bytes."""
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes follow the {header.count} records of offset {header.base_offset}")
