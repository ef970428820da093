"""The ``%`` language of ``ottla consume -f`` and ``ottla produce -f``, as rpk and kcl have it; ``LANGUAGE`` is its reference."""

from __future__ import annotations

import base64
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ottla.client.buffer import AnyRecord, ConsumerRecord
from ottla.errors import ErrorCode, KafkaError

LANGUAGE: Final = """\
The language of -f, which prints records (consume) and reads them (produce).

%t       topic                                       %T      its length
%k       key                                         %K      its length
%v       value                                       %V      its length
%h{...}  headers, each by the format in the braces   %H      their count (inside: %k %v, %K %V)
%p       partition                                   %e      leader epoch
%o       offset                                      %d      timestamp, milliseconds
%x %y    producer id, epoch (-1: unknown)            %a      timestamp type
%[       the partition's start offset                %]      its high watermark (%| the same)
%%       a percent sign                              %{ %}   braces

Modifiers follow in braces:
  of texts    %v{hex} %v{base64} %v{json} %v{unpack[>I]}
  of numbers  %p{big32} %p{little64} %p{hex16} %p{ascii}, which is the default
  of times    %d{strftime[%F %T]}
Escapes: \\n \\t \\r \\\\ \\0 \\xHH

produce reads %t %k %v %p %d %h %H and lengths %T %K %V, which come before what they measure:
a field ends after as many bytes as its length said, else where the text after it begins. In a format that ends
in \\n a field has no newline, unless its length is given or the text after it has one: a line that lacks that text
is an error.

json: one object a line, with topic, partition, offset, timestamp_ms, key, value and headers; bytes that
are no text are key_base64 and value_base64. produce -f json reads what consume -f json writes: without a
TOPIC each record goes to the topic and the partition that it came from, with one to that topic, by its key.

  ottla consume orders -f '%p %o %k=%v %d{strftime[%F]}\\n'
  ottla consume orders -f json --exit | ottla produce orders-again -f json
"""

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_NUMBER = re.compile(r"(big|little|hex)(8|16|32|64)")
_STRUCT_CODES = {8: "b", 16: "h", 32: "i", 64: "q"}


@dataclass(slots=True)
class Marks:
    """The offsets of a partition that its records do not show."""

    start_offset: int = -1
    high_watermark: int = -1


Piece = Callable[[AnyRecord, Marks], bytes]


def _bytes_modifier(name: str) -> Callable[[bytes], bytes]:
    if name == "":
        return lambda data: data
    if name == "hex":
        return lambda data: data.hex().encode()
    if name in ("base64", "b64"):
        return base64.b64encode
    if name == "json":
        return lambda data: msgspec.json.encode(data.decode("utf-8", "replace"))
    if name.startswith("unpack[") and name.endswith("]"):
        try:
            layout = struct.Struct(name[7:-1])
        except struct.error as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"record format: {{{name}}}: {error}") from None
        return lambda data: ",".join(map(str, layout.unpack(data))).encode()
    raise _bad(f"modifier {{{name}}} for text")


def _number_modifier(name: str) -> Callable[[int], bytes]:
    if name in ("", "ascii"):
        return lambda number: str(number).encode()
    match = _NUMBER.fullmatch(name)
    if match is None:
        raise _bad(f"modifier {{{name}}} of a number")
    bits = int(match[2])
    if match[1] == "hex":
        return lambda number: f"{number & (1 << bits) - 1:0{bits // 4}x}".encode()
    layout = struct.Struct((">" if match[1] == "big" else "<") + _STRUCT_CODES[bits])
    return layout.pack


def _time_modifier(name: str) -> Callable[[int], bytes]:
    if name.startswith("strftime[") and name.endswith("]"):
        layout = name[9:-1]
        return lambda number: datetime.fromtimestamp(number / 1000, UTC).strftime(layout).encode()
    return _number_modifier(name)


def _bad(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"record format: {what} is not known; `ottla help format` lists what there is")


_TEXTS: dict[str, Callable[[AnyRecord], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
}
_NUMBERS: dict[str, Callable[[AnyRecord, Marks], int]] = {
    "T": lambda record, _: len(record.topic.encode()),
    "K": lambda record, _: len(record.key or b""),
    "V": lambda record, _: len(record.value or b""),
    "H": lambda record, _: len(record.headers),
    "p": lambda record, _: record.partition,
    "o": lambda record, _: record.offset,
    "e": lambda record, _: record.leader_epoch,
    "a": lambda record, _: record.timestamp_type,
    "x": lambda record, _: -1,
    "y": lambda record, _: -1,
    "[": lambda _, marks: marks.start_offset,
    "]": lambda _, marks: marks.high_watermark,
    "|": lambda _, marks: marks.high_watermark,
}


def check_word(text: str) -> None:
    """Raises INVALID_REQUEST for a word in the place of a format: it would be printed for each record."""
    if text.isalpha() and text != "json":
        problem = f"record format: {text!r} names no field and is not json; '%v\\n' is the value, a line for each record"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{problem}; `ottla help format` lists what there is")


class RecordFormat:
    """A compiled format. ``render`` gives one record's bytes."""

    def __init__(self, text: str) -> None:
        self._pieces: list[Piece] = []
        if text == "json":
            self._pieces.append(lambda record, _: as_json(record) + b"\n")
        else:
            self._compile(text)

    def render(self, record: AnyRecord, marks: Marks) -> bytes:
        """Returns the record's bytes. INVALID_REQUEST where a modifier cannot hold a part of it."""
        try:
            return b"".join(piece(record, marks) for piece in self._pieces)
        except struct.error as error:
            text = f"record {record.offset} of {record.topic}-{record.partition} does not fit the format: {error}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text) from None

    def _compile(self, text: str) -> None:
        position = 0
        while position < len(text):
            character = text[position]
            if character == "\\":
                literal, position = read_escape(text, position + 1)
                self._literal(literal)
            elif character == "%":
                position = self._directive(text, position + 1)
            else:
                self._literal(os.fsencode(character))
                position += 1

    def _literal(self, data: bytes) -> None:
        self._pieces.append(lambda record, marks: data)

    def _directive(self, text: str, position: int) -> int:
        if position >= len(text):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "record format: a % at the end names no field; %% is a percent sign")
        name = text[position]
        position += 1
        if name in "%{}":
            self._literal(name.encode())
            return position
        modifier = ""
        if position < len(text) and text[position] == "{":
            modifier, position = read_braces(text, position)
        self._pieces.append(_piece(name, modifier))
        return position


def _piece(name: str, modifier: str) -> Piece:
    if name in _TEXTS:
        text, change = _TEXTS[name], _bytes_modifier(modifier)
        if modifier == "json" and name != "t":
            return lambda record, _: change(text(record)) if (record.key if name == "k" else record.value) is not None else b"null"
        return lambda record, _: change(text(record))
    if name in _NUMBERS:
        number, shape = _NUMBERS[name], _number_modifier(modifier)
        return lambda record, marks: shape(number(record, marks))
    if name == "d":
        time = _time_modifier(modifier)
        return lambda record, _: time(record.timestamp_ms)
    if name == "h":
        if not modifier:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "record format: %h takes a format of each header in braces: '%h{%k=%v }'")
        inner = RecordFormat(modifier)
        return lambda record, marks: b"".join(inner.render(_header(record, key, value), marks) for key, value in record.headers)
    raise _bad(f"%{name}")


def _header(record: AnyRecord, key: str, value: bytes | None) -> AnyRecord:
    """Returns a header dressed as a record, so that %k, %v, %K and %V mean its parts."""
    return ConsumerRecord(
        record.topic, record.partition, record.offset, record.timestamp_ms, 0, key.encode(), value, (), record.leader_epoch
    )


def read_escape(text: str, position: int) -> tuple[bytes, int]:
    """Returns what a backslash means, and the position after it."""
    if text[position : position + 1] == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", text[position + 1 : position + 3]):
        return bytes.fromhex(text[position + 1 : position + 3]), position + 3
    found = _ESCAPES.get(text[position : position + 1])
    if found is None:
        raise _bad(f"\\{text[position : position + 1]}")
    return found, position + 1


def read_braces(text: str, position: int) -> tuple[str, int]:
    """Returns the text between the braces at ``position``, which may nest."""
    depth = 0
    for index in range(position, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[position + 1 : index], index + 1
    raise KafkaError(ErrorCode.INVALID_REQUEST, "record format: a { has no }; %{ and %} are braces")


def as_json(record: AnyRecord) -> bytes:
    """Returns one object: text where the bytes are UTF-8, else base64 under ``key_base64`` and ``value_base64``."""
    item: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        item |= _json_bytes(name, data)
    if record.headers:
        item["headers"] = [{"key": key} | _json_bytes("value", value) for key, value in record.headers]
    return msgspec.json.encode(item)


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
