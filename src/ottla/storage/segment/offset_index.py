"""From an offset to a position in a segment: sparse, one entry for every few kilobytes of log.

An entry names a batch: the offset of its last record and the position of its first byte. So the entry at or below an offset
is a place from which to walk forward. In memory two flat arrays; on disk Kafka's format, eight bytes an entry: offset
relative to the segment's base and position, both 32-bit big-endian.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from ottla.errors import DecodeError
from ottla.ports import Buffer

ENTRY_SIZE: Final = 8
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetIndex:
    """Entries rise strictly in both columns."""

    __slots__ = ("_base_offset", "_offsets", "_positions")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """``(offset, position)``, absolute."""
        return [(self._base_offset + offset, position) for offset, position in zip(self._offsets, self._positions)]

    @property
    def last(self) -> tuple[int, int] | None:
        return (self._base_offset + self._offsets[-1], self._positions[-1]) if self._offsets else None

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self._base_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """Returns the entry with the largest offset at or below ``offset``; None when the segment's start is nearer."""
        index = bisect_right(self._offsets, offset - self._base_offset) if offset >= self._base_offset else 0
        return (self._base_offset + self._offsets[index - 1], self._positions[index - 1]) if index else None

    def bound_of(self, position: int) -> int | None:
        """Returns the offset after the first indexed batch that starts at ``position`` or later; None without one."""
        index = bisect_left(self._positions, position)
        return self._base_offset + self._offsets[index] + 1 if index < len(self._positions) else None

    def truncate(self, size: int) -> None:
        """Removes entries at positions from ``size`` on."""
        while self._positions and self._positions[-1] >= size:
            self._positions.pop()
            self._offsets.pop()

    def to_bytes(self) -> bytes:
        words = array("I", bytes(len(self._offsets) * ENTRY_SIZE))
        words[0::2] = self._offsets
        words[1::2] = self._positions
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()

    @classmethod
    def from_bytes(cls, data: Buffer, base_offset: int, *, log_size: int) -> OffsetIndex:
        """Returns the index with these entries; DecodeError when they do not fit a segment of ``log_size`` bytes."""
        if len(data) % ENTRY_SIZE:
            raise DecodeError(f"an offset index has {len(data)} bytes, not a multiple of {ENTRY_SIZE}")
        words = array("I", bytes(data))
        if sys.byteorder == "little":
            words.byteswap()
        index = cls(base_offset)
        index._offsets, index._positions = words[0::2], words[1::2]
        if words and (not _rises(index._offsets) or not _rises(index._positions)):
            raise DecodeError("an offset index has entries that do not rise")
        if words and (index._positions[-1] >= log_size or index._offsets[-1] > RELATIVE_OFFSET_MAX):
            raise DecodeError(f"an offset index points to byte {index._positions[-1]} of a segment of {log_size}")
        return index


def _rises(numbers: array[int]) -> bool:
    return all(map(int.__lt__, numbers, numbers[1:]))
