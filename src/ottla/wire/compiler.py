"""One encoder and one decoder per (class, version), written as straight-line source and compiled on first use.

Neighbouring fields of fixed size become one ``struct`` call; nested structs are unrolled into loops, so a message costs
one Python function however deep it is. Counts are checked against the bytes left before a list is filled, and against a
bound on elements per message. The source of a codec can be read: ``source_of_decoder(cls, version)``.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.errors import DecodeError, EncodeError
from ottla.ports import Buffer
from ottla.wire.decoder import DecoderSource
from ottla.wire.encoder import EncoderSource
from ottla.wire.schema import Message, Struct

M = TypeVar("M", bound=Message)
Append = Callable[[Any], None]
Encoder = Callable[[Any, Append], None]
Decoder = Callable[[Buffer, int, int], tuple[Any, int]]

_encoders: dict[tuple[type, int], Encoder] = {}
_part_encoders: dict[tuple[type, type, int], Encoder] = {}
_decoders: dict[tuple[type, int], Decoder] = {}


def encode_into(message: Message, version: int, append: Append) -> None:
    """The message's bytes are handed to ``append`` in pieces; a ``records`` value is passed on as the object it is."""
    encoder = _encoders.get((type(message), version)) or _compile_encoder(type(message), version)
    try:
        encoder(message, append)
    except (struct.error, TypeError, AttributeError) as error:  # out of range, or null where the version has no null
        raise EncodeError(f"{type(message).__name__} v{version}: {error}") from error


def encode(message: Message, version: int) -> bytes:
    """The message's bytes."""
    pieces: list[Any] = []
    encode_into(message, version, pieces.append)
    return b"".join(pieces)


def encode_part(part: Struct, message: type[Message], version: int) -> bytes:
    """The bytes of an array's element: in messages of that class and version they may stand for it."""
    cls = type(part)
    encoder = _part_encoders.get((cls, message, version))
    if encoder is None:
        writer = EncoderSource(cls, version, message)
        encoder = _build(writer.source(), f"encode {cls.__name__} of {message.__name__} v{version}", "encode", writer.names)
        _part_encoders[cls, message, version] = encoder
    pieces: list[Any] = []
    encoder(part, pieces.append)
    return b"".join(pieces)


def decode_from(cls: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """The message that begins at ``position``, and the position after it. DecodeError for anything else."""
    decoder = _decoders.get((cls, version)) or _compile_decoder(cls, version)
    try:
        return decoder(data, position, len(data))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from error


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """The message that ``data`` holds, whole: bytes left over are an error."""
    message, end = decode_from(cls, version, data)
    if end != len(data):
        raise DecodeError(f"{cls.__name__} v{version}: {len(data) - end} bytes behind the end")
    return message


def _compile_encoder(cls: type, version: int) -> Encoder:
    writer = EncoderSource(cls, version)
    function: Encoder = _build(writer.source(), f"encode {cls.__name__} v{version}", "encode", writer.names)
    _encoders[cls, version] = function
    return function


def _compile_decoder(cls: type, version: int) -> Decoder:
    reader = DecoderSource(cls, version)
    function: Decoder = _build(reader.source(), f"decode {cls.__name__} v{version}", "decode", reader.names)
    _decoders[cls, version] = function
    return function


def source_of_encoder(cls: type[Message], version: int) -> str:
    return EncoderSource(cls, version).source()


def source_of_decoder(cls: type[Message], version: int) -> str:
    return DecoderSource(cls, version).source()


def _build(source: str, title: str, name: str, names: dict[str, Any]) -> Any:
    filename = f"<{title}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)  # tracebacks show the generated line
    exec(compile(source, filename, "exec"), names)
    return names[name]
