"""Properties files, read as ``java.util.Properties`` reads them from a stream of bytes (``tests/interop/test_properties.py``).

A file is Latin-1. A key ends at the first ``=``, ``:`` or blank that no backslash escapes; blanks around it, and one separator
among them, belong to nothing, but blanks at the end of a value are its own. A line that ends in an odd number of backslashes goes
on with the next one, without that one's leading blanks. ``#`` and ``!`` start a comment where a line could start. ``\\uXXXX`` is a
UTF-16 unit. Source: the documentation of ``Properties.load``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from ottla.errors import ErrorCode, KafkaError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the pairs of the file."""
    with open(path, "rb") as file:
        return parse_properties(file.read().decode("latin-1"))


def parse_properties(text: str) -> dict[str, str]:
    """Returns keys and values, the last value of each key; INVALID_CONFIG for an escape that is cut short."""
    return {key: value for _, key, value in numbered_pairs(text)}


def numbered_pairs(text: str) -> Iterator[tuple[int, str, str]]:
    """Yields the number of its first line, from 1, the key and the value of each pair, as ``parse_properties`` reads them."""
    for number, line in _logical_lines(text):
        yield number, *_pair(line)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    first, pending = 0, ""
    goes_on = False  # the line before ended in a backslash
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    for number, raw in enumerate(lines if text else (), 1):
        line = raw.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):  # even after a line that was a backslash alone
            goes_on = False
            continue
        first = first if goes_on else number
        pending += line
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if goes_on:
            pending = pending[:-1]
        else:
            yield first, pending
            pending = ""
    if pending or (goes_on and not text.endswith("\r\n")):  # a backslash at the very end leaves an empty key in Java, too
        yield first, pending


def _pair(line: str) -> tuple[str, str]:
    end = _key_end(line)
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescaped(line[:end]), _unescaped(value)


def _key_end(line: str) -> int:
    is_escaped = False
    for at, character in enumerate(line):
        if not is_escaped and (character in "=:" or character in _BLANKS):
            return at
        is_escaped = character == "\\" and not is_escaped
    return len(line)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    pieces: list[str] = []
    position = 0
    while (escape := text.find("\\", position)) >= 0:
        pieces.append(text[position:escape])
        letter = text[escape + 1 : escape + 2]
        position = escape + 2
        if letter == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not _HEX.issuperset(digits):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"malformed escape \\u{digits[:4]}: four hexadecimal digits follow the u")
            pieces.append(chr(int(digits, 16)))
            position += 4
        else:
            pieces.append(_ESCAPES.get(letter, letter))
    pieces.append(text[position:])
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
