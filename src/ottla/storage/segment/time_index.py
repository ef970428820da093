"""From a time to an offset in a segment: sparse, beside the offset index.

An entry ``(timestamp, offset)`` says: the largest timestamp so far, and the last offset of the first batch that had it. So
every record before that batch is older than ``timestamp``, and a search for a time starts at the entry at or below it.
On disk Kafka's format, twelve bytes an entry: 64-bit timestamp, 32-bit offset relative to the segment's base.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Final

from ottla.errors import DecodeError
from ottla.ports import Buffer

ENTRY_SIZE: Final = 12
_ENTRY: Final = struct.Struct(">qI")


class TimeIndex:
    """Entries rise strictly in both columns."""

    __slots__ = ("_base_offset", "_offsets", "_timestamps")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """``(timestamp, offset)``, absolute."""
        return [(timestamp, self._base_offset + offset) for timestamp, offset in zip(self._timestamps, self._offsets)]

    @property
    def last(self) -> tuple[int, int] | None:
        return (self._timestamps[-1], self._base_offset + self._offsets[-1]) if self._offsets else None

    def append(self, timestamp: int, offset: int) -> None:
        """Appends an entry if ``timestamp`` is larger than all before, and not -1, which is no time."""
        if timestamp > (self._timestamps[-1] if self._timestamps else -1):
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self._base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """Returns the entry with the largest timestamp at or below ``timestamp``; None when all are larger."""
        index = bisect_right(self._timestamps, timestamp)
        return (self._timestamps[index - 1], self._base_offset + self._offsets[index - 1]) if index else None

    def truncate(self, end_offset: int) -> None:
        """Removes entries of offsets from ``end_offset`` on."""
        while self._offsets and self._base_offset + self._offsets[-1] >= end_offset:
            self._offsets.pop()
            self._timestamps.pop()

    def to_bytes(self) -> bytes:
        return b"".join(map(_ENTRY.pack, self._timestamps, self._offsets))

    @classmethod
    def from_bytes(cls, data: Buffer, base_offset: int) -> TimeIndex:
        """Reads the entries. DecodeError when they cannot be a time index's."""
        if len(data) % ENTRY_SIZE:
            raise DecodeError(f"a time index has {len(data)} bytes, not a multiple of {ENTRY_SIZE}")
        index = cls(base_offset)
        for timestamp, offset in _ENTRY.iter_unpack(data):
            if index._offsets and (timestamp <= index._timestamps[-1] or offset <= index._offsets[-1]):
                raise DecodeError("a time index has entries that do not rise")
            index._timestamps.append(timestamp)
            index._offsets.append(offset)
        return index
