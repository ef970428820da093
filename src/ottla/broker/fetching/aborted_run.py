"""The aborted transactions in a partition's answer, in the form that goes over the wire.

A fetch where all is aborted returns dozens of them: encoded one by one, they took as long as half of all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.storage.segment.transaction_index import START

_TAGGED_FIELDS_SINCE: Final = 12


class AbortedRun:
    """The structs of a list, encoded before: an encoder has their number, and gets all of them as one piece."""

    __slots__ = ("_count", "_piece")

    def __init__(self, beginnings: bytes | bytearray, version: int) -> None:
        self._count = len(beginnings) // START.size
        if version < _TAGGED_FIELDS_SINCE:
            beginnings = bytearray(beginnings)
            del beginnings[START.size - 1 :: START.size]
        self._piece = bytes(beginnings)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        yield self._piece
