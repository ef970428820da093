"""Varints and the few helpers that generated codecs call.

Unsigned varints are as in KIP-482: 7 bits a byte, least significant group first, at most five bytes for 32 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NoReturn

from ottla.errors import DecodeError, EncodeError, OttlaError
from ottla.ports import Buffer

TAGS_MAX: Final = 256
"""Tagged fields in one struct; a peer that sends more is refused before they are walked (CVE-2026-111115)."""
STRING_BYTES_MAX: Final = 0x7FFF
"""The bytes of a string, as Kafka's own decoders allow them in either form of a length; hashing a name of 100 MiB would hold a loop."""


class ManyElements(OttlaError):
    """The message has more elements than are worked off without a pause."""


def _encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = [_encode_uvarint(value) for value in range(1024)]


def uvarint(value: int) -> bytes:
    """Returns the varint of ``value``, which is not negative."""
    return _SMALL[value] if value < 1024 else _encode_uvarint(value)


def string_length(size_bytes: int) -> bytes:
    """Returns the varint that goes before a string. EncodeError for more than STRING_BYTES_MAX bytes."""
    if size_bytes < 1023:
        return _SMALL[size_bytes + 1]
    if size_bytes > STRING_BYTES_MAX:
        raise EncodeError(f"a string of {size_bytes} bytes is too long: at most {STRING_BYTES_MAX} can be sent")
    return _encode_uvarint(size_bytes + 1)


class _ArrayForms(dict[int, struct.Struct]):
    """Forms by the number of elements, made on first use; forms of large arrays are not kept."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, count: int) -> struct.Struct:
        form = struct.Struct(f">{count}{self._code}")
        if count < len(_SMALL):
            self[count] = form
        return form


@cache
def array_forms(code: str) -> Mapping[int, struct.Struct]:
    """Returns the forms of big-endian values of the ``struct`` format ``code``, by the number of values."""
    return _ArrayForms(code)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Returns the value and the position after it. IndexError past the end, DecodeError beyond 32 bits."""
    byte: int = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise DecodeError("an unsigned varint is larger than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise DecodeError("an unsigned varint has more than five bytes")


def skip_tags(data: Buffer, position: int, end: int) -> int:
    """Returns the position after a tag section, all of which it skips."""
    count, position = read_uvarint(data, position)
    last = -1
    if count > TAGS_MAX:
        too_many_tags(count)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        last = check_tag(tag, last, position + size, end)
        position += size
    return position


def check_tag(tag: int, last: int, field_end: int, end: int) -> int:
    """Returns the tag, when it is larger than the last one and its bytes are there."""
    if tag <= last:
        raise DecodeError(f"tag {tag} follows tag {last}: tags must rise")
    if field_end > end:
        raise DecodeError(f"tagged field {tag} ends {field_end - end} bytes after the message")
    return tag


def too_many_tags(count: int) -> NoReturn:
    raise DecodeError(f"{count} tagged fields in one struct; the limit is {TAGS_MAX}")


def bad_tag_size(tag: int) -> NoReturn:
    raise DecodeError(f"tagged field {tag} does not fill the size it declares")


def bad_length(what: str, length: int, left: int) -> NoReturn:
    if length < 0:
        raise DecodeError(f"{what} has length {length} and may not be null")
    raise DecodeError(f"{what} has length {length}, {left} bytes are left")


def long_string(what: str, length: int) -> NoReturn:
    raise DecodeError(f"{what} has {length} bytes; a string has at most {STRING_BYTES_MAX}")


def bad_count(what: str, count: int, left: int) -> NoReturn:
    if count < 0:
        raise DecodeError(f"{what} has {count} elements and may not be null")
    raise DecodeError(f"{what} has {count} elements, more than fit in the {left} bytes left or than a message may hold")


def bad_or_many(what: str, count: int, left: int) -> NoReturn:
    """Raises an error for the count; decoders of few elements are run again in steps where it is only too many for them."""
    if count > left:
        bad_count(what, count, left)
    many_elements()


def bad_null(what: str) -> NoReturn:
    raise EncodeError(f"{what} may not be null in this version")


def many_elements() -> NoReturn:
    raise ManyElements


def text(data: Any) -> str:
    return str(data, "utf-8")


def cut_text(message: str) -> bytes:
    """Returns what of a text for people fits into a string."""
    encoded = message.encode()
    return encoded if len(encoded) <= STRING_BYTES_MAX else encoded[:STRING_BYTES_MAX].decode(errors="ignore").encode()
