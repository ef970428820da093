"""The records of a batch.

A record is a length and then, in varints of zig-zag numbers: attributes (one plain byte), timestamp and offset as
differences to the batch's, key, value, and headers; each length -1 means null. The module is plain typed Python with its
varints decoded in place, so that it may also be compiled; a record costs well under a microsecond either way.

Only ``DecodeError`` escapes: each length is held against the bytes left, each record must fill the length it declares, the
batch must hold exactly the records that it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, BatchHeader, read_header
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, decompress

Headers = tuple[tuple[str, bytes | None], ...]

_VARINT_BITS_MAX: Final = 63


class Record(msgspec.Struct, gc=False):
    """One record as its consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def iterate_records(data: Buffer, position: int = 0, *, limit: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The records of the batch at ``position``, decompressed to at most ``limit`` bytes. The CRC is not looked at."""
    return list(walk_records(data, position, limit=limit))


def walk_records(data: Buffer, position: int = 0, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """As ``iterate_records``, one after the other: a batch of many small records costs no memory for all of them."""
    header = read_header(data, position)
    end = position + header.size_bytes
    if end > len(data):
        raise DecodeError(f"the batch at byte {position} has {header.size_bytes} bytes, {len(data) - position} are left")
    payload = decompress(header.codec, memoryview(data)[position + HEADER_SIZE : end], limit)
    return decode_records(payload, header)


def decode_records(payload: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records in a batch's decompressed bytes."""
    data = bytes(payload)
    try:
        yield from _decode(data, header)
    except IndexError:
        raise DecodeError(f"the records of offset {header.base_offset} end inside a record") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"a header's key is not UTF-8: {error}") from None


def check_records(view: memoryview, *, must_have_keys: bool, limit: int = DECOMPRESSED_BYTES_MAX) -> None:
    """INVALID_RECORD when the batch does not decode, numbers its records wrongly, or lacks a key where a topic needs them."""
    try:
        base_offset = read_header(view).base_offset
        for index, record in enumerate(walk_records(view, limit=limit)):
            if record.offset != base_offset + index:
                raise DecodeError(f"record {index} of the batch has offset delta {record.offset - base_offset}")
            if must_have_keys and record.key is None:
                raise DecodeError(f"record {index} has no key; a compacted topic keeps one record for each key")
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error


def _decode(data: bytes, header: BatchHeader) -> Iterator[Record]:
    position = 0
    end = len(data)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    delta_max = header.last_offset_delta
    append_time = header.max_timestamp if header.is_log_append_time else -1
    is_append_time = header.is_log_append_time
    remaining = header.count
    while remaining > 0:
        remaining -= 1
        # Each number first in its one-byte form, which most have.
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        record_end = position + ((number >> 1) ^ -(number & 1))
        if record_end > end or record_end <= position:
            raise DecodeError(f"a record of {record_end - position} bytes at byte {position}; {end - position} are left")
        position += 1  # attributes: none is defined
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        delta = (number >> 1) ^ -(number & 1)
        if delta < 0 or delta > delta_max:
            raise DecodeError(f"a record has offset delta {delta}; the batch ends with {delta_max}")
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        if number == 1:
            key = None
        else:
            field_end = position + (number >> 1)
            if number & 1 or field_end > record_end:
                raise _bad_length("key", number, record_end - position)
            key = data[position:field_end]
            position = field_end
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position, number)
        if number == 1:
            value = None
        else:
            field_end = position + (number >> 1)
            if number & 1 or field_end > record_end:
                raise _bad_length("value", number, record_end - position)
            value = data[position:field_end]
            position = field_end
        number = data[position]
        position += 1
        headers: Headers = ()
        if number:
            headers, position = _headers(data, position, number, record_end)
        if position != record_end:
            raise DecodeError(f"a record ends at byte {position}, its length says {record_end}")
        yield Record(base_offset + delta, append_time if is_append_time else timestamp, key, value, headers)
    if position != end:
        raise DecodeError(f"{end - position} bytes follow the {header.count} records of offset {base_offset}")


def _headers(data: bytes, position: int, first: int, end: int) -> tuple[Headers, int]:
    """The headers and the position after them; ``first`` is the first byte of their count."""
    if first >= 0x80:
        first, position = _varint(data, position, first)
    count = first >> 1
    if first & 1 or count > (end - position) // 2:  # a header has at least two lengths
        raise _bad_length("header list", first, end - position)
    headers: list[tuple[str, bytes | None]] = []
    while count > 0:
        count -= 1
        key, position = _field(data, position, end)
        if key is None:
            raise DecodeError("a header has no key")
        value, position = _field(data, position, end)
        headers.append((key.decode(), value))
    return tuple(headers), position


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    number = data[position]
    position += 1
    if number >= 0x80:
        number, position = _varint(data, position, number)
    if number == 1:
        return None, position
    field_end = position + (number >> 1)
    if number & 1 or field_end > end:
        raise _bad_length("header", number, end - position)
    return data[position:field_end], field_end


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


def _bad_length(what: str, zigzag: int, left: int) -> DecodeError:
    return DecodeError(f"a {what} has length {(zigzag >> 1) ^ -(zigzag & 1)}, {left} bytes are left in its record")
