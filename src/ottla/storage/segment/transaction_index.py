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
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import astuple

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.storage.segment.minima import Minima

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0
START: Final = struct.Struct(">qqx")
"""Producer id and first offset, as the answers of Fetch have them from version 12 on: no tagged fields follow."""
LOOKED_AT: Final = 1000
"""So many entries are sooner looked at, each of them, than passed over."""


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """One that has ended. ``last_offset`` is that of its end marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index of a growing segment, as columns: 33 bytes an entry. Last offsets rise strictly, stable ones do not fall."""

    __slots__ = ("_beginnings", "_falls", "_last_offsets", "_minima", "_stable_offsets")

    def __init__(self, entries: Iterable[Transaction] = ()) -> None:
        self._beginnings = bytearray()
        self._last_offsets = array("q")
        self._stable_offsets = array("q")
        self._falls = array("q")  # entries that started before the one before them
        self._minima: Minima | None = None  # of the first offsets, once they are asked for
        for entry in entries:
            self.add(entry)

    @classmethod
    def from_bytes(cls, data: Buffer) -> TransactionIndex:
        """Reads the file of a segment. DecodeError when this cannot be one."""
        index = cls()
        for entry in checked_entries(data):
            index._append(*entry)
        return index

    def __len__(self) -> int:
        return len(self._last_offsets)

    def add(self, entry: Transaction) -> None:
        last_offsets, stable_offsets = self._last_offsets, self._stable_offsets
        assert not last_offsets or last_offsets[-1] < entry.last_offset, "markers come in the order of the log"
        assert not last_offsets or stable_offsets[-1] <= entry.last_stable_offset, "what is decided stays decided"
        self._append(*astuple(entry))
        if self._minima is not None:
            self._minima.append(entry.first_offset)

    def _append(self, producer_id: int, first_offset: int, last_offset: int, stable_offset: int) -> None:
        count = len(self._last_offsets)
        if count and first_offset < self._first_offset(count - 1):
            self._falls.append(count)
        self._beginnings += START.pack(producer_id, first_offset)
        self._last_offsets.append(last_offset)
        self._stable_offsets.append(stable_offset)

    def between(self, start_offset: int, end_offset: int) -> list[Transaction]:
        """Returns the transactions whose markers are there."""
        return list(itertools.starmap(Transaction, self._entries(self._at(start_offset), self._at(end_offset))))

    def _entries(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        columns = zip(self._pairs(start, end), self._last_offsets[start:end], self._stable_offsets[start:end], strict=True)
        return ((*pair, last_offset, stable_offset) for pair, last_offset, stable_offset in columns)

    def _pairs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return START.iter_unpack(self._beginnings[start * START.size : end * START.size])

    def beginnings(self, start_offset: int, end_offset: int) -> bytearray:
        """Returns the ``START`` of the transactions that may have a record there: what readers are given.

        They started before the end, and have not ended before the start.
        """
        start, end, later = self._looked_at(start_offset, end_offset)
        if start < end and self._do_rise(start, end):
            if self._first_offset(end - 1) >= end_offset:
                end = bisect_left(range(end), end_offset, start, key=self._first_offset)
            found = self._beginnings[start * START.size : end * START.size]
        else:
            found = bytearray().join(START.pack(*pair) for pair in self._pairs(start, end) if pair[1] < end_offset)
        for index in later:
            found += self._beginnings[index * START.size : (index + 1) * START.size]
        return found

    def _looked_at(self, start_offset: int, end_offset: int) -> tuple[int, int, Iterable[int]]:
        """Returns from where to where entries are looked at, and which later ones started before the end."""
        start = self._at(start_offset)
        end = min(bisect_left(self._stable_offsets, end_offset, start) + 1, len(self))
        if end - start <= LOOKED_AT:
            return start, end, ()
        if self._minima is None:  # one was open for long, and all that ended meanwhile come before its end
            self._minima = Minima(first_offset for _, first_offset in self._pairs(0, len(self)))
        return start, start, itertools.takewhile(end.__gt__, self._minima.below(end_offset, start))

    def _do_rise(self, start: int, end: int) -> bool:
        """Returns whether first offsets do not fall from one entry to the next, as with short transactions: these need no look at each."""
        fall = bisect_right(self._falls, start)
        return fall == len(self._falls) or self._falls[fall] >= end

    def _first_offset(self, index: int) -> int:
        first_offset: int = START.unpack_from(self._beginnings, index * START.size)[1]
        return first_offset

    def truncate(self, end_offset: int) -> None:
        """Removes what is at or after the log's new end."""
        count = self._at(end_offset)
        del self._beginnings[count * START.size :], self._last_offsets[count:], self._stable_offsets[count:]
        del self._falls[bisect_left(self._falls, count) :]
        if self._minima is not None:
            self._minima.truncate(count)

    def extremes(self, start: int, end: int) -> tuple[int, int, int]:
        """Returns of these entries, counted from the oldest, the smallest first offset, and the last two of the last one."""
        last = min(end, len(self)) - 1
        return min(first_offset for _, first_offset in self._pairs(start, end)), self._last_offsets[last], self._stable_offsets[last]

    def to_bytes(self) -> bytes:
        """Returns the entries as the file of the segment has them."""
        return b"".join(ENTRY.pack(VERSION, *entry) for entry in self._entries(0, len(self)))

    def _at(self, offset: int) -> int:
        return bisect_left(self._last_offsets, offset)


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
