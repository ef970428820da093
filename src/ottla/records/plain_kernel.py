"""The record kernel in its plain form: the records of a batch, from bytes and to bytes.

A record is a length and then, in varints of zig-zag numbers: attributes (one plain byte), timestamp and offset as
differences to the batch's, key, value, and headers; each length -1 means null. Whatever walks records one by one does it here.

This is the reference, and what runs where nothing compiled can be: from a zipped wheel, on a Python without a limited API. The same in
C is in ``c/``: what comes out, and what is raised, is the same there, and a change here is a change there. Lengths and offset deltas
are held to 32 bits; absolute offsets and times may leave 64. Varints of one byte, the most common ones, are read in place.

Only ``DecodeError`` escapes from reading: each length is checked against the bytes left, each record must fill the length that it
declares, the batch must hold exactly the records that it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.errors import DecodeError

if TYPE_CHECKING:
    from ottla.types import Headers

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1


def decode_columns(
    data: bytes,
    position: int,
    count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    last_delta: int,
    delta_min: int,
    delta_max: int,
    offsets: list[int],
    times: list[int],
    keys: list[bytes | None] | None,
    values: list[bytes | None] | None,
    headers: list[Headers] | None,
) -> int:
    """Adds the wanted ones of the next ``count`` records to the wanted columns; the position after those records.

    ``last_delta`` is the offset of the batch's last record less ``base_offset``; records with ``delta_min <= delta <= delta_max``
    are wanted. Columns that are None are not made, and headers that are not wanted are not looked at.
    """
    end = len(data)
    try:
        while count > 0:
            count -= 1
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _varint(data, position, number)
            record_end = position + (number >> 1)
            if number & 1 or record_end > end:
                raise _bad_length("record", number, end - position)
            number = data[position + 1]  # the byte before it are the attributes: none is defined
            position += 2
            if number < 0x80:
                time_delta = (number >> 1) ^ -(number & 1)
            else:
                time_delta, position = _varlong(data, position, number)
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _varint(data, position, number)
            delta = (number >> 1) ^ -(number & 1)
            if delta < delta_min or delta > delta_max:
                if delta < 0 or delta > last_delta:
                    raise DecodeError(f"a record has offset delta {delta}; the batch ends with {last_delta}")
                if position > record_end:
                    raise DecodeError(f"a record ends at byte {position}, its length says {record_end}")
                position = record_end
                continue
            offset_delta: int = delta
            offsets.append(base_offset + offset_delta)
            times.append(base_timestamp + time_delta)
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
                    raise _bad_length("key", number, record_end - position)
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
                    raise _bad_length("value", number, record_end - position)
                if values is not None:
                    values.append(data[position:field_end])
                position = field_end
            number = data[position]
            position += 1
            if number == 0:
                if headers is not None:
                    headers.append(())
            elif headers is not None:
                found, position = _headers(data, position, number, record_end)
                headers.append(found)
            elif position < record_end:
                position = record_end
            if position != record_end:
                raise DecodeError(f"a record ends at byte {position}, its length says {record_end}")
    except IndexError:
        raise DecodeError(f"the records of offset {base_offset} end inside a record") from None
    return position


GARBAGE: Final = -1
MISCOUNTED: Final = -2
MISSHAPEN: Final = -3


def check_records(data: bytes | memoryview, position: int, count: int, first_delta: int) -> tuple[int, int, int, int]:
    """Checks that the next ``count`` records are complete and numbered ``first_delta``, ``first_delta + 1`` and so on.

    The position after them, the smallest and the largest time delta, and how many have no key. In place of the position GARBAGE
    when a record's length is none that the data has, MISCOUNTED when the data ends before the last record, or a record has
    another number, MISSHAPEN when what is in a record does not fill it.
    """
    end = len(data)
    time_min = time_max = keyless = 0
    is_first = True
    try:
        while count > 0:
            if position >= end:
                return MISCOUNTED, time_min, time_max, keyless
            count -= 1
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _checked_varint(data, position, number)
            record_end = position + (number >> 1)
            if number & 1 or number < 0 or record_end > end:
                return GARBAGE, time_min, time_max, keyless
            number = data[position + 1]
            position += 2
            if number < 0x80:
                time_delta = (number >> 1) ^ -(number & 1)
            else:
                time_delta, position = _varlong(data, position, number)
            if is_first:
                is_first = False
                time_min = time_delta
                time_max = time_delta
            elif time_delta < time_min:
                time_min = time_delta
            elif time_delta > time_max:
                time_max = time_delta
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _varint(data, position, number)
            if number != first_delta << 1:
                return MISCOUNTED, time_min, time_max, keyless
            first_delta += 1
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _varint(data, position, number)
            if number == 1:
                keyless += 1
            elif number & 1:
                return MISSHAPEN, time_min, time_max, keyless
            else:
                position += number >> 1
            if position >= record_end:
                return MISSHAPEN, time_min, time_max, keyless
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _varint(data, position, number)
            if number != 1:
                if number & 1:
                    return MISSHAPEN, time_min, time_max, keyless
                position += number >> 1
            if position >= record_end:
                return MISSHAPEN, time_min, time_max, keyless
            number = data[position]
            position += 1
            if number:
                position = _pass_headers(data, position, number, record_end)
            if position != record_end:
                return MISSHAPEN, time_min, time_max, keyless
    except (IndexError, DecodeError):
        return MISSHAPEN, time_min, time_max, keyless
    return position, time_min, time_max, keyless


def _checked_varint(data: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """Returns as ``_varint``; a malformed or incomplete number is -1."""
    try:
        return _varint(data, position, first)
    except (IndexError, DecodeError):
        return -1, position


def _pass_headers(data: bytes | memoryview, position: int, count: int, end: int) -> int:
    """Returns the position after the headers; -1 when they are incomplete."""
    if count >= 0x80:
        count, position = _varint(data, position, count)
    if count & 1 or count > end - position:
        return -1
    while count > 0:
        count -= 2
        for is_value in (False, True):
            if position >= end:
                return -1
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _varint(data, position, number)
            if is_value and number == 1:
                continue
            if number & 1 or number >> 1 > end - position:
                return -1
            position += number >> 1
    return position


def _headers(data: bytes, position: int, count: int, end: int) -> tuple[Headers, int]:
    """Returns the headers and the position after them; ``count`` is the first byte of their number."""
    if count >= 0x80:
        count, position = _varint(data, position, count)
    if count & 1 or count > end - position:  # it is twice the number, and a header has at least two lengths
        raise _bad_length("header list", count, end - position)
    headers: list[tuple[str, bytes | None]] = []
    while count > 0:
        count -= 2
        key, position = _field(data, position, end)
        if key is None:
            raise DecodeError("a header has no key")
        value, position = _field(data, position, end)
        headers.append((key.decode(errors="replace"), value))  # clients in other languages write any bytes, and brokers take them
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


def _varint(data: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """Returns the still zig-zag number of at most 32 bits whose first byte was ``first``, and the position after it."""
    byte = data[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    third = data[position + 1]
    if third < 0x80:
        return first & 0x7F | (byte & 0x7F) << 7 | third << 14, position + 2
    number, position = _varlong(data, position, first)
    if number < _INT_MIN or number > _INT_MAX:
        raise DecodeError("a length or an offset has more than 32 bits")
    return (number << 1) ^ (number >> 31), position


def _varlong(data: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """Returns the number of at most 64 bits whose first byte was ``first``, and the position after it."""
    zigzag = first & 0x7F
    shift = 0
    byte = first
    while byte >= 0x80:
        byte = data[position]
        position += 1
        shift += 7
        if shift == 63:  # the tenth byte has the last one of 64 bits
            if byte > 1:
                raise DecodeError("a varint has more than 64 bits")
            return (zigzag >> 1 | byte << 62) ^ -(zigzag & 1), position
        zigzag |= (byte & 0x7F) << shift
    return (zigzag >> 1) ^ -(zigzag & 1), position


def _bad_length(what: str, zigzag: int, left: int) -> DecodeError:
    return DecodeError(f"a {what} has length {(zigzag >> 1) ^ -(zigzag & 1)}, {left} bytes are left for it")


def encode_record(
    time_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """Returns one record, its length included; the differences are to the batch's base timestamp and base offset."""
    body = b"\0%b%b%b%b%b%b%b" % (
        varint(time_delta),
        varint(offset_delta),
        _NULL if key is None else varint(len(key)),
        key or b"",
        _NULL if value is None else varint(len(value)),
        value or b"",
        _encode_headers(headers) if headers else b"\0",
    )
    return varint(len(body)) + body


def encode_columns(
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: list[Headers] | None,
    *,
    start: int,
    end: int,
    time_delta: int,
    offset_delta: int,
    size_max: int,
) -> tuple[bytes, int]:
    """Encodes rows from ``start`` on as records that all have one time; returns them, and the first row that is not among them.

    Their offset deltas count from ``offset_delta`` on. They end before row ``end``, or with the row that brings them to ``size_max``
    bytes. ``headers`` is None when no row has any.
    """
    pieces: list[bytes] = []
    size = 0
    time = varint(time_delta)
    while start < end and size < size_max:
        key = keys[start]
        value = values[start]
        body = b"\0%b%b%b%b%b%b%b" % (
            time,
            varint(offset_delta),
            _NULL if key is None else varint(len(key)),
            key or b"",
            _NULL if value is None else varint(len(value)),
            value or b"",
            b"\0" if headers is None else _encode_headers(headers[start]),
        )
        length = varint(len(body))
        pieces.append(length)
        pieces.append(body)
        size += len(length) + len(body)
        start += 1
        offset_delta += 1
    return b"".join(pieces), start


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    pieces = [varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        pieces.append(varint(len(encoded)))
        pieces.append(encoded)
        if content is None:
            pieces.append(_NULL)
        else:
            pieces.append(varint(len(content)))
            pieces.append(content)
    return b"".join(pieces)


def _encode_varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL: Final = [_encode_varint(value) for value in range(4096)]
_NULL: Final = _encode_varint(-1)


def varint(value: int) -> bytes:
    """Returns a zig-zag varint."""
    return _SMALL[value] if 0 <= value < 4096 else _encode_varint(value)
