"""Which transactions of a log were aborted: for read_committed readers, and for each segment a file ``.txnindex``.

An entry is of the abort marker that is at its last offset. It says where its transaction started, and up to where everything was decided
once it had ended: who reads no further than that needs no later entry. Entries of a whole log are in memory, in order, for aborts are
rare; those whose marker is in a segment are in its file when it is closed. A segment without a file has none.

On disk Kafka's format, 34 bytes an entry: version 0, producer id, first, last, last stable offset. Source: KIP-98.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import msgspec

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.storage.segment.minima import Minima

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_LAST_OFFSET: Final = attrgetter("last_offset")
LOOKED_AT: Final = 16
"""Entries of a reader's range that are looked at one by one: there are seldom more."""


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """One that has ended. ``last_offset`` is that of its end marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index of one log. Last offsets rise strictly."""

    __slots__ = ("_entries", "_first_offsets")

    def __init__(self, entries: Iterable[Transaction] = ()) -> None:
        self._entries = list(entries)
        self._first_offsets: Minima | None = None  # of the entries, once they are asked for

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Transaction) -> None:
        assert not self._entries or self._entries[-1].last_offset < entry.last_offset, "markers come in the order of the log"
        self._entries.append(entry)
        if self._first_offsets is not None:
            self._first_offsets.append(entry.first_offset)

    def between(self, start_offset: int, end_offset: int) -> list[Transaction]:
        """The transactions whose markers are there."""
        return self._entries[self._at(start_offset) : self._at(end_offset)]

    def reaching_into(self, start_offset: int, end_offset: int) -> list[Transaction]:
        """The transactions with a record there, perhaps: started before the end, and not ended before the start."""
        found, entries, at = [], self._entries, self._at(start_offset)
        for index in range(at, min(at + LOOKED_AT, len(entries))):
            entry = entries[index]
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found
        if at + LOOKED_AT < len(entries):  # one was open for long, and thousands of others may have ended before it
            if self._first_offsets is None:
                self._first_offsets = Minima(entry.first_offset for entry in entries)
            found += [entries[index] for index in self._first_offsets.below(end_offset, at + LOOKED_AT)]
        return found

    def truncate(self, end_offset: int) -> None:
        """The log ends there."""
        del self._entries[self._at(end_offset) :]
        if self._first_offsets is not None:
            self._first_offsets.truncate(len(self._entries))

    def drop_below(self, offset: int) -> None:
        """The log's first segment starts there."""
        if self._entries and self._entries[0].last_offset < offset:
            del self._entries[: self._at(offset)]
            self._first_offsets = None

    def replace(self, start_offset: int, end_offset: int, entries: Iterable[Transaction]) -> None:
        """Between the two there are these."""
        self._entries[self._at(start_offset) : self._at(end_offset)] = entries
        self._first_offsets = None

    def _at(self, offset: int) -> int:
        return bisect_left(self._entries, offset, key=_LAST_OFFSET)


def to_bytes(entries: Iterable[Transaction]) -> bytes:
    """As the file of a segment has them."""
    return b"".join(
        _ENTRY.pack(_VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset) for entry in entries
    )


def from_bytes(data: Buffer) -> list[Transaction]:
    """DecodeError when this cannot be the file of a segment."""
    if len(data) % _ENTRY.size:
        raise DecodeError(f"a transaction index has {len(data)} bytes, not a multiple of {_ENTRY.size}")
    entries: list[Transaction] = []
    for version, *columns in _ENTRY.iter_unpack(data):
        entry = Transaction(*columns)
        if version != _VERSION:
            raise DecodeError(f"a transaction index has an entry of version {version}")
        if entry.first_offset > entry.last_offset or (entries and entries[-1].last_offset >= entry.last_offset):
            raise DecodeError("a transaction index has entries that do not rise")
        entries.append(entry)
    return entries
