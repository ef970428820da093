"""The bytes of one metadata record: frame version 1, API key and version as varints, then the flexible body.

Source: KIP-631, "Record Format".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from ottla.errors import DecodeError
from ottla.messages import metadata_records as declared
from ottla.metadata.record_versions import NEWEST, version_at
from ottla.ports import Buffer
from ottla.wire.compiler import decode_from, encode
from ottla.wire.primitives import read_uvarint, uvarint
from ottla.wire.schema import Stored, declaration_of

FRAME_VERSION: Final = 1

TYPES: Final[Mapping[int, type[Stored]]] = {
    declaration_of(found).code: found
    for found in vars(declared).values()
    if isinstance(found, type) and issubclass(found, Stored) and found is not Stored
}
"""Every record that ``messages/metadata_records.py`` declares."""


def encode_record(record: Stored, level: int = NEWEST) -> bytes:
    """Encodes the value of a metadata log record, in the version that belongs to a ``metadata.version`` of that level."""
    head, version = _head(type(record), level)
    return head + encode(record, version)


@lru_cache(1024)
def _head(cls: type[Stored], level: int) -> tuple[bytes, int]:
    """Returns the bytes before the body, and the version of the body."""
    declaration = declaration_of(cls)
    version = declaration.versions[1] if level >= NEWEST else version_at(cls, level)
    return uvarint(FRAME_VERSION) + uvarint(declaration.code) + uvarint(version), version


def decode_record(data: Buffer) -> Stored:
    """Decodes a record. DecodeError for a frame version, type or version that this broker does not know: it must not guess."""
    try:
        frame_version, code, version, position = data[0], data[1], data[2], 3
        if frame_version | code | version >= 128:
            frame_version, position = read_uvarint(data, 0)
            code, position = read_uvarint(data, position)
            version, position = read_uvarint(data, position)
    except IndexError as error:
        raise DecodeError("a metadata record ends in its head") from error
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata frame version {frame_version}; {FRAME_VERSION} is known")
    cls = TYPES.get(code)
    if cls is None:
        raise DecodeError(f"metadata record type {code} is not known")
    low, high = declaration_of(cls).versions
    if not low <= version <= high:
        raise DecodeError(f"{cls.__name__} version {version}; {low} to {high} are known")
    record, end = decode_from(cls, version, data, position)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes after a {cls.__name__}")
    return record
