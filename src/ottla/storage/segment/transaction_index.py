"""Which transactions were aborted whose markers are in one segment: for read_committed readers, and for its file ``.txnindex``.

An entry is of the abort marker that is at its last offset. It says where its transaction started, and up to where everything was decided
once it had ended: who reads no further than that needs no later entry. The entries of a log's last segment are in memory, in order. When
it is closed they are in its file (``transaction_blocks.py``). A segment without a file has none.

On disk Kafka's format, 34 bytes an entry: version 0, producer id, first, last, last stable offset. Source: KIP-98.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import astuple

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.storage.segment.minima import Minima

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0
_FIRST: Final = 1
_LAST: Final = 2
_STABLE: Final = 3
"""Columns, of those below."""
LOOKED_AT: Final = 1000
"""So many entries are sooner looked at, each of them, than passed over."""


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """One that has ended. ``last_offset`` is that of its end marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]
"""Producer ids, first, last and last stable offsets."""


class TransactionIndex:
    """The transaction index of a growing segment, as columns: 32 bytes an entry. Last offsets rise strictly, stable ones do not fall."""

    __slots__ = ("_columns", "_minima")

    def __init__(self, entries: Iterable[Transaction] = ()) -> None:
        self._columns: Columns = _columns(entries)
        self._minima: Minima | None = None  # of the first offsets, once they are asked for

    @classmethod
    def from_bytes(cls, data: Buffer) -> TransactionIndex:
        """Reads the file of a segment. DecodeError when this cannot be one."""
        index = cls()
        for entry in checked_entries(data):
            for column, number in zip(index._columns, entry, strict=True):
                column.append(number)
        return index

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, entry: Transaction) -> None:
        last_offsets, last_stable_offsets = self._columns[_LAST], self._columns[_STABLE]
        assert not last_offsets or last_offsets[-1] < entry.last_offset, "markers come in the order of the log"
        assert not last_offsets or last_stable_offsets[-1] <= entry.last_stable_offset, "what is decided stays decided"
        for column, number in zip(self._columns, astuple(entry), strict=True):
            column.append(number)
        if self._minima is not None:
            self._minima.append(entry.first_offset)

    def between(self, start_offset: int, end_offset: int) -> list[Transaction]:
        """Returns the transactions whose markers are there."""
        part = slice(self._at(start_offset), self._at(end_offset))
        return [Transaction(*entry) for entry in zip(*(column[part] for column in self._columns), strict=True)]

    def beginnings(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Returns producer id and first offset of the transactions that may have a record there: what readers are given.

        They started before the end, and have not ended before the start.
        """
        producer_ids, first_offsets = self._columns[0], self._columns[_FIRST]
        part, later = self._looked_at(start_offset, end_offset)
        found = [pair for pair in zip(producer_ids[part], first_offsets[part], strict=True) if pair[1] < end_offset]
        found += [(producer_ids[index], first_offsets[index]) for index in later]
        return found

    def _looked_at(self, start_offset: int, end_offset: int) -> tuple[slice, Iterable[int]]:
        """Returns entries that are looked at one by one, and which later ones started before the end."""
        first_offsets, last_stable_offsets = self._columns[_FIRST], self._columns[_STABLE]
        at = self._at(start_offset)
        end = min(bisect_left(last_stable_offsets, end_offset, at) + 1, len(first_offsets))
        if end - at <= LOOKED_AT:
            return slice(at, end), ()
        if self._minima is None:  # one was open for long, and all that ended meanwhile come before its end
            self._minima = Minima(first_offsets)
        return slice(at, at), itertools.takewhile(end.__gt__, self._minima.below(end_offset, at))

    def truncate(self, end_offset: int) -> None:
        """Removes what is at or after the log's new end."""
        count = self._at(end_offset)
        for column in self._columns:
            del column[count:]
        if self._minima is not None:
            self._minima.truncate(len(self))

    def extremes(self, start: int, end: int) -> tuple[int, int, int]:
        """Returns of these entries, counted from the oldest, the smallest first offset, and the last two of the last one."""
        _, first_offsets, last_offsets, last_stable_offsets = self._columns
        last = min(end, len(self)) - 1
        return min(first_offsets[start:end]), last_offsets[last], last_stable_offsets[last]

    def to_bytes(self) -> bytes:
        """Returns the entries as the file of the segment has them."""
        return b"".join(ENTRY.pack(VERSION, *entry) for entry in zip(*self._columns, strict=True))

    def _at(self, offset: int) -> int:
        return bisect_left(self._columns[_LAST], offset)


def _columns(entries: Iterable[Transaction]) -> Columns:
    producer_ids, first_offsets, last_offsets, last_stable_offsets = array("q"), array("q"), array("q"), array("q")
    for entry in entries:
        producer_ids.append(entry.producer_id)
        first_offsets.append(entry.first_offset)
        last_offsets.append(entry.last_offset)
        last_stable_offsets.append(entry.last_stable_offset)
    return producer_ids, first_offsets, last_offsets, last_stable_offsets


def to_bytes(entries: Iterable[Transaction]) -> bytes:
    """Returns the entries as the file of a segment has them."""
    return b"".join(
        ENTRY.pack(VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset) for entry in entries
    )


def from_bytes(data: Buffer) -> list[Transaction]:
    """Reads the entries. DecodeError when this cannot be the file of a segment."""
    index = TransactionIndex.from_bytes(data)
    return index.between(0, 2**63 - 1)


def checked_entries(data: Buffer, *, after: tuple[int, int] = (-1, -1)) -> Iterator[tuple[int, int, int, int]]:
    """Yields producer id, first, last and last stable offset of each entry in a part of a file.

    ``after``: the last two of the entry before. DecodeError when this cannot be the file of a segment.
    """
    if len(data) % ENTRY.size:
        raise DecodeError(f"a transaction index has {len(data)} bytes, not a multiple of {ENTRY.size}")
    latest, stable = after
    for version, producer_id, first_offset, last_offset, last_stable_offset in ENTRY.iter_unpack(data):
        if version != VERSION:
            raise DecodeError(f"a transaction index has an entry of version {version}")
        if first_offset > last_offset or last_offset <= latest or last_stable_offset < stable:
            raise DecodeError("a transaction index has entries that do not rise")
        latest, stable = last_offset, last_stable_offset
        yield producer_id, first_offset, last_offset, last_stable_offset
