"""Which transactions of a log were aborted: for read_committed readers, and for each segment a file ``.txnindex``.

An entry is of the abort marker that is at its last offset. It says where its transaction started, and up to where everything was decided
once it had ended: who reads no further than that needs no later entry. Entries of a whole log are in memory, in order; those whose marker
is in a segment are in its file when it is closed. A segment without a file has none.

On disk Kafka's format, 34 bytes an entry: version 0, producer id, first, last, last stable offset. Source: KIP-98.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import astuple

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.storage.segment.minima import Minima

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
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
    """The transaction index of one log, as columns: 32 bytes an entry. Last offsets rise strictly, last stable offsets do not fall."""

    __slots__ = ("_columns", "_minima")

    def __init__(self, entries: Iterable[Transaction] = ()) -> None:
        self._columns: Columns = _columns(entries)
        self._minima: Minima | None = None  # of the first offsets, once they are asked for

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

    def reaching_into(self, start_offset: int, end_offset: int) -> list[Transaction]:
        """Returns the transactions that may have a record there: started before the end, and not ended before the start."""
        first_offsets = self._columns[_FIRST]
        part, later = self._looked_at(start_offset, end_offset)
        near = (index for index in range(part.start, part.stop) if first_offsets[index] < end_offset)
        return [self._entry(index) for index in itertools.chain(near, later)]

    def beginnings(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Returns producer id and first offset of the same transactions: what readers are given."""
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
        self._replace(slice(self._at(end_offset), None), ())
        if self._minima is not None:
            self._minima.truncate(len(self))

    def drop_below(self, offset: int) -> None:
        """Removes what is before the log's new start."""
        last_offsets = self._columns[_LAST]
        if last_offsets and last_offsets[0] < offset:
            self._replace(slice(0, self._at(offset)), ())
            self._minima = None

    def replace(self, start_offset: int, end_offset: int, entries: Iterable[Transaction]) -> None:
        """Replaces the entries between the two."""
        self._replace(slice(self._at(start_offset), self._at(end_offset)), entries)
        self._minima = None

    def _replace(self, part: slice, entries: Iterable[Transaction]) -> None:
        for column, numbers in zip(self._columns, _columns(entries), strict=True):
            column[part] = numbers

    def _entry(self, index: int) -> Transaction:
        producer_ids, first_offsets, last_offsets, last_stable_offsets = self._columns
        return Transaction(producer_ids[index], first_offsets[index], last_offsets[index], last_stable_offsets[index])

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
        _ENTRY.pack(_VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset) for entry in entries
    )


def from_bytes(data: Buffer) -> list[Transaction]:
    """Reads the entries. DecodeError when this cannot be the file of a segment."""
    if len(data) % _ENTRY.size:
        raise DecodeError(f"a transaction index has {len(data)} bytes, not a multiple of {_ENTRY.size}")
    entries: list[Transaction] = []
    for version, *columns in _ENTRY.iter_unpack(data):
        entry = Transaction(*columns)
        if version != _VERSION:
            raise DecodeError(f"a transaction index has an entry of version {version}")
        if entry.first_offset > entry.last_offset or (entries and not _follows(entries[-1], entry)):
            raise DecodeError("a transaction index has entries that do not rise")
        entries.append(entry)
    return entries


def _follows(before: Transaction, entry: Transaction) -> bool:
    return before.last_offset < entry.last_offset and before.last_stable_offset <= entry.last_stable_offset
