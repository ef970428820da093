"""One encoder and one decoder per (class, version), written as straight-line source and compiled on first use.

Neighbouring fields of fixed size become one ``struct`` call; nested structs are unrolled into loops, so a message costs
one Python function however deep it is. Counts are checked against the bytes left before a list is filled, and against a
bound on elements per message. The source of a codec can be read: ``source_of_encoder(cls, version)``, ``source_of_decoder``.

A codec has several forms (``Form``): a caller with other work takes the form for few elements, and for many the form that pauses.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from ottla.errors import DecodeError, EncodeError
from ottla.ports import Buffer
from ottla.wire.decoder import DecoderSource
from ottla.wire.encoder import EncoderSource
from ottla.wire.generator import Form
from ottla.wire.mistakes import mistake_of
from ottla.wire.schema import Message, Struct

M = TypeVar("M", bound=Message)
Append = Callable[[Any], None]
Encode = Callable[[Any, Append], Any]
Decode = Callable[[Buffer, int, int], Any]

_encoders: dict[tuple[type, int, Form], Encode] = {}
_part_encoders: dict[tuple[type, type, int], Encode] = {}
_decoders: dict[tuple[type, int, Form], Decode] = {}
_MISTAKES = (struct.error, TypeError, AttributeError, UnicodeEncodeError, EncodeError)
"""Of a message: out of range, or of another type, too long, or null where the version has no null."""
_BAD_BYTES = (struct.error, IndexError, UnicodeDecodeError)


def encode_into(message: Message, version: int, append: Append, form: Form = Form.WHOLE) -> None:
    """Hands the message's bytes to ``append`` in pieces; a ``records`` value is passed on as the object it is.

    ``Form.FEW``: ManyElements, perhaps after some pieces, when the message has more than are encoded without a pause.
    """
    encode = _encoders.get((type(message), version, form)) or _compile_encoder(type(message), version, form)
    try:
        encode(message, append)
    except _MISTAKES as error:
        raise _not_encoded(message, version, error) from error


def encode_in_steps(message: Message, version: int, append: Append) -> Iterator[None]:
    """Encodes as ``encode_into`` does, pausing after each few milliseconds of work; the message must not change meanwhile."""
    encode = _encoders.get((type(message), version, Form.STEPS)) or _compile_encoder(type(message), version, Form.STEPS)
    try:
        yield from encode(message, append)
    except _MISTAKES as error:
        raise _not_encoded(message, version, error) from error


def _not_encoded(message: Message, version: int, error: Exception) -> EncodeError:
    return EncodeError(f"{type(message).__name__} v{version}: {mistake_of(message, version) or error}")


def encode(message: Message, version: int) -> bytes:
    """Returns the message's bytes."""
    pieces: list[Any] = []
    encode_into(message, version, pieces.append)
    return b"".join(pieces)


def encode_part(part: Struct, message: type[Message], version: int) -> bytes:
    """Returns the bytes of an array's element: in messages of that class and version they may take its place."""
    cls = type(part)
    encoder = _part_encoders.get((cls, message, version))
    if encoder is None:
        writer = EncoderSource(cls, version, message)
        encoder = _build(writer.source(), f"encode {cls.__name__} of {message.__name__} v{version}", "encode", writer.names)
        _part_encoders[cls, message, version] = encoder
    pieces: list[Any] = []
    encoder(part, pieces.append)
    return b"".join(pieces)


def decode_from(cls: type[M], version: int, data: Buffer, position: int = 0, form: Form = Form.WHOLE) -> tuple[M, int]:
    """Returns the message that starts at ``position``, and the position after it. DecodeError for anything else.

    ``Form.FEW``: ManyElements when the message has, or says it has, more than are decoded without a pause.
    """
    decode = _decoders.get((cls, version, form)) or _compile_decoder(cls, version, form)
    try:
        found: tuple[M, int] = decode(data, position, len(data))
    except _BAD_BYTES as error:
        raise _not_decoded(cls, version, error) from error
    return found


def decode_in_steps(cls: type[M], version: int, data: Buffer, position: int = 0) -> Generator[None, None, tuple[M, int]]:
    """Decodes as ``decode_from`` does, pausing after each few milliseconds of work; the data must not change meanwhile."""
    decode = _decoders.get((cls, version, Form.STEPS)) or _compile_decoder(cls, version, Form.STEPS)
    try:
        found: tuple[M, int] = yield from decode(data, position, len(data))
    except _BAD_BYTES as error:
        raise _not_decoded(cls, version, error) from error
    return found


def _not_decoded(cls: type, version: int, error: Exception) -> DecodeError:
    return DecodeError(f"{cls.__name__} v{version}: {error}")


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """Returns the message that ``data`` holds: bytes left over are an error."""
    message, end = decode_from(cls, version, data)
    if end != len(data):
        raise DecodeError(f"{cls.__name__} v{version}: {len(data) - end} bytes after the end")
    return message


def _compile_encoder(cls: type, version: int, form: Form) -> Encode:
    writer = EncoderSource(cls, version, form=form)
    function: Encode = _build(writer.source(), f"encode {cls.__name__} v{version} {form.name}", "encode", writer.names)
    _encoders[cls, version, form] = function
    return function


def _compile_decoder(cls: type, version: int, form: Form) -> Decode:
    reader = DecoderSource(cls, version, form)
    function: Decode = _build(reader.source(), f"decode {cls.__name__} v{version} {form.name}", "decode", reader.names)
    _decoders[cls, version, form] = function
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
