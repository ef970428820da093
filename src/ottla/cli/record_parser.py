"""Reading records by the same ``%`` language in which they are printed, or from JSON.

A field ends where the literal after it starts, or after as many bytes as a length field before it said (``%K %V`` with a
modifier such as ``{big32}`` or ``{ascii}``). ``%t %k %v %p %d`` and headers ``%h{%k=%v}`` (as many as ``%H`` said, else one)
are understood. One record a match, until the input ends. Where a format ends in a newline, a line that does not fit it is an error:
it is no part of a field that ends in a later line.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import msgspec

from ottla.cli.record_format import read_braces, read_escape
from ottla.errors import ErrorCode, KafkaError

_NUMBER = re.compile(r"(big|little)(8|16|32|64)")
_STRUCT_CODES = {"8": "B", "16": "H", "32": "I", "64": "Q"}
_JSON_KEYS: Final = frozenset({"topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers"})
TEXT_SHOWN_MAX: Final = 60
_TEXT_FIELDS = "tkv"
_LENGTH_FIELDS = "TKV"
_NUMBER_FIELDS = "pdH"
_DECODERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, "hex": lambda data: bytes.fromhex(data.decode()), "base64": base64.b64decode}


@dataclass(slots=True)
class ParsedRecord:
    """The fields of a match; None where the format has no such field."""

    topic: str | None = None
    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Step:
    """A literal when ``name`` is empty."""

    name: str
    literal: bytes = b""
    modifier: str = ""


@dataclass(frozen=True, slots=True)
class _End:
    """The text after a field, which ends it; None where the format ends. The last text of all may be missing at the input's end."""

    literal: bytes | None
    is_last: bool


class RecordParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._steps = _compile(text)
        if not any(step.name for step in self._steps):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"record format {text!r} has no field such as %v")
        _check_ends(self._steps)

    def parse(self, stream: BinaryIO) -> Iterator[ParsedRecord]:
        """Yields records until the stream ends; INVALID_REQUEST when it ends inside one."""
        reader = _Reader(stream, self._text, has_lines=self._steps[-1].literal.endswith(b"\n"))
        while not reader.is_at_end:
            record = ParsedRecord()
            lengths: dict[str, int] = {}
            for index, step in enumerate(self._steps):
                is_last = index + 1 == len(self._steps)
                following = _End(None if is_last else self._steps[index + 1].literal, is_last=index + 2 >= len(self._steps))
                _take(step, following, reader, record, lengths, may_be_missing=is_last)
            yield record


class JsonParser:
    """A parser of what ``consume -f json`` writes. With ``keeps_place`` records go where they came from."""

    def __init__(self, *, keeps_place: bool) -> None:
        self._keeps_place = keeps_place

    def parse(self, stream: BinaryIO) -> Iterator[ParsedRecord]:
        """Yields a record for each line; INVALID_REQUEST, with the line's number, for one that is none."""
        for number, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield self._record(msgspec.json.decode(line, type=dict[str, Any]))
                except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"line {number} is no record as `consume -f json` prints it: {error}"
                    ) from None

    def _record(self, item: dict[str, Any]) -> ParsedRecord:
        strange = item.keys() - _JSON_KEYS
        if strange:
            raise ValueError(f"it has {min(strange)!r}")
        place = {"topic": item.get("topic"), "partition": item.get("partition")} if self._keeps_place else {}
        if self._keeps_place and not isinstance(place["topic"], str):
            raise ValueError("it names no topic, and the command neither")
        headers = [(str(header["key"]), _json_bytes(header, "value")) for header in _json_headers(item.get("headers", ()))]
        return ParsedRecord(
            key=_json_bytes(item, "key"), value=_json_bytes(item, "value"), timestamp_ms=item.get("timestamp_ms"), headers=headers, **place
        )


def _json_headers(headers: Any) -> list[dict[str, Any]]:
    if isinstance(headers, dict):
        return [{"key": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list | tuple) or not all(isinstance(header, dict) and "key" in header for header in headers):
        raise ValueError('headers are of the form {"NAME": "VALUE"} or [{"key": "NAME", "value": "VALUE"}]')
    return list(headers)


def _json_bytes(item: dict[str, Any], name: str) -> bytes | None:
    encoded = item.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    text = item.get(name)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{name} is no string")
    return None if text is None else text.encode()


def parser_of(layout: str, *, keeps_place: bool) -> RecordParser | JsonParser:
    """Returns the reader of the format."""
    return JsonParser(keeps_place=keeps_place) if layout == "json" else RecordParser(layout)


class _Reader:
    """A stream with a look ahead."""

    def __init__(self, stream: BinaryIO, layout: str, *, has_lines: bool) -> None:
        self._stream = stream
        self._layout = layout
        self._has_lines = has_lines
        self._line = 1
        self._buffer = b""
        self._is_done = False

    @property
    def is_at_end(self) -> bool:
        return not self._buffer and not self._fill()

    def _fill(self) -> bool:
        if self._is_done:
            return False
        data = self._stream.read1(65536) if hasattr(self._stream, "read1") else self._stream.read(65536)
        self._is_done = not data
        self._buffer += data
        return bool(data)

    def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not self._fill():
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the input ends inside a record: {size} bytes are expected")
        return self._taken(size)

    def until(self, end: _End, name: str) -> bytes:
        """Reads the field up to the text that ends it, which stays; up to the end of the input, where there is no such text.

        INVALID_REQUEST when the text is missing: in a format of lines, when the line ends before it.
        """
        ends_in_line = self._has_lines and bool(end.literal) and b"\n" not in (end.literal or b"")
        while True:
            at = self._buffer.find(end.literal) if end.literal else -1
            newline = self._buffer.find(b"\n") if ends_in_line else -1
            if newline >= 0 and not 0 <= at < newline:
                raise self._lacking(self._buffer[:newline], end, name)
            if at >= 0:
                return self._taken(at)
            if not self._fill():
                if end.literal and not end.is_last:
                    raise self._lacking(self._buffer, end, name)
                return self._taken(len(self._buffer))

    def skip(self, literal: bytes, *, may_be_missing: bool) -> None:
        while len(self._buffer) < len(literal) and self._fill():
            pass
        if self._buffer.startswith(literal):
            self._taken(len(literal))
        elif self._buffer or not may_be_missing:  # the last line may lack its newline
            raise self.unfit(
                f"{_quoted(self._buffer)} does not begin with {_quoted(literal)}" if self._buffer else "the input ends too early"
            )

    def unfit(self, what: str) -> KafkaError:
        """Returns the error of input that does not fit the format, at the line that is being read."""
        return KafkaError(ErrorCode.INVALID_REQUEST, f"line {self._line}: {what} (format '{self._layout}')")

    def _lacking(self, text: bytes, end: _End, name: str) -> KafkaError:
        return self.unfit(f"{_quoted(text)} has no {_quoted(end.literal or b'')} after %{name}")

    def _taken(self, size: int) -> bytes:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        self._line += taken.count(b"\n")
        return taken


def _quoted(data: bytes) -> str:
    """Returns a text in quotes, or the first part of a long one, as JSON has it."""
    text = data[:TEXT_SHOWN_MAX].decode("utf-8", "replace")
    return msgspec.json.encode(text).decode() + ("..." if len(data) > TEXT_SHOWN_MAX else "")


def _compile(text: str) -> list[_Step]:
    steps: list[_Step] = []
    literal = b""
    position = 0
    while position < len(text):
        if text[position] == "\\":
            part, position = read_escape(text, position + 1)
            literal += part
        elif text[position] == "%" and text[position + 1 : position + 2] not in ("%", "{", "}"):
            if literal:
                steps.append(_Step("", literal))
                literal = b""
            name, modifier = text[position + 1 : position + 2], ""
            position += 2
            if text[position : position + 1] == "{":
                modifier, position = read_braces(text, position)
            if name not in (*_TEXT_FIELDS, *_LENGTH_FIELDS, *_NUMBER_FIELDS, "h"):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"record format: %{name} cannot be read; `ottla help format` lists what can")
            steps.append(_Step(name, modifier=modifier))
        else:
            position += text[position] == "%"
            literal += os.fsencode(text[position])
            position += 1
    return [*steps, _Step("", literal)] if literal else steps


def _check_ends(steps: list[_Step]) -> None:
    """Raises INVALID_REQUEST for a field of unknown length that another one follows at once: it would take all of the input."""
    known = set()
    for step, after in itertools.pairwise(steps):
        has_length = step.name.upper() in known if step.name in _TEXT_FIELDS else _NUMBER.fullmatch(step.modifier) is not None
        if step.name and step.name != "h" and after.name and not has_length:
            way_out = f"put a text between them, or the length of %{step.name} before it"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"record format: nothing ends %{step.name} before %{after.name}; {way_out}")
        known.add(step.name)


def _take(step: _Step, following: _End, reader: _Reader, record: ParsedRecord, lengths: dict[str, int], *, may_be_missing: bool) -> None:
    if not step.name:
        reader.skip(step.literal, may_be_missing=may_be_missing)
    elif step.name in _LENGTH_FIELDS or step.name in _NUMBER_FIELDS:
        number = _number(step, following, reader)
        if step.name == "p":
            record.partition = number
        elif step.name == "d":
            record.timestamp_ms = number
        else:
            lengths[step.name] = number
    elif step.name == "h":
        inner = _compile(step.modifier)
        for _ in range(lengths.get("H", 1)):
            part = ParsedRecord()
            for index, inner_step in enumerate(inner):
                after = _End(inner[index + 1].literal, is_last=False) if index + 1 < len(inner) else following
                _take(inner_step, after, reader, part, lengths, may_be_missing=False)
            record.headers.append(((part.key or b"").decode(), part.value or b""))
    else:
        size = lengths.pop(step.name.upper(), None)
        raw = reader.until(following, step.name) if size is None else reader.exactly(size)
        if step.modifier not in _DECODERS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"record format: modifier {{{step.modifier}}} cannot be read")
        data = _DECODERS[step.modifier](raw)
        if step.name == "t":
            record.topic = data.decode()
        elif step.name == "k":
            record.key = data
        else:
            record.value = data


def _number(step: _Step, following: _End, reader: _Reader) -> int:
    match = _NUMBER.fullmatch(step.modifier)
    if match is not None:
        layout = struct.Struct((">" if match[1] == "big" else "<") + _STRUCT_CODES[match[2]])
        value: int = layout.unpack(reader.exactly(layout.size))[0]
        return value
    text = reader.until(following, step.name)
    try:
        return int(text)
    except ValueError:
        raise reader.unfit(f"{_quoted(text)} is no number, as %{step.name} is") from None
