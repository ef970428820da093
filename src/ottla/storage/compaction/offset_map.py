"""The newest offset of each key, in memory that grows with the keys and is bounded beforehand.

A slot has 24 bytes, as in Kafka: a hash of the key of 16 bytes, and an offset. Keys themselves are not kept, so the number of
keys that fit does not depend on how long they are. Two keys with the same hash would be taken for one; with 128 bits that
does not happen by chance, and blake2b does not let it happen on purpose.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

SLOT_BYTES: Final = 24
FIRST_SLOTS: Final = 1024
_GROWTH: Final = 8  # while it grows there are the old slots as well: an eighth more
_HASH_BYTES: Final = 16


class OffsetMap:
    """Open addressing; ``is_full`` at the load factor, so that look-ups stay short."""

    __slots__ = ("_count_max", "_hashes", "_load_factor", "_offsets", "_slot_count", "_slots_max", "count")

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        self._load_factor = load_factor
        self._slots_max = max(2, size_bytes // SLOT_BYTES)
        self._take(min(self._slots_max, FIRST_SLOTS))
        self.count = 0

    def _take(self, slot_count: int) -> None:
        """Allocates so many slots, all of them free."""
        self._slot_count = slot_count
        self._count_max = max(1, min(int(slot_count * self._load_factor), slot_count - 1))
        self._hashes = bytearray(slot_count * _HASH_BYTES)
        self._offsets = memoryview(bytearray(slot_count * 8)).cast("q")  # one more than the offset; 0 for a free slot

    @property
    def is_full(self) -> bool:
        return self.count >= self._count_max and self._slot_count == self._slots_max

    def put(self, key: bytes, offset: int) -> None:
        """Puts ``offset`` as the key's newest; not to be called with a new key when full."""
        digest = _digest(key)
        slot = self._find(digest)
        if not self._offsets[slot]:
            assert not self.is_full, "the cleaner stops filling a map that is full"
            if self.count >= self._count_max:
                self._grow()
                slot = self._find(digest)
            self.count += 1
            self._hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] = digest
        self._offsets[slot] = offset + 1

    def get(self, key: bytes) -> int:
        """Returns the key's newest offset; -1 for an unknown key."""
        return self._offsets[self._find(_digest(key))] - 1

    def _find(self, digest: bytes) -> int:
        """Returns the key's slot, or the free slot where it belongs."""
        slot = int.from_bytes(digest[:8], "big") % self._slot_count
        while self._offsets[slot] and self._hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] != digest:
            slot = slot + 1 if slot + 1 < self._slot_count else 0
        return slot

    def _grow(self) -> None:
        hashes, offsets = self._hashes, self._offsets
        self._take(min(self._slots_max, self._slot_count * _GROWTH))
        for old, offset in enumerate(offsets):
            if offset:
                digest = bytes(hashes[old * _HASH_BYTES : (old + 1) * _HASH_BYTES])
                slot = self._find(digest)
                self._hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] = digest
                self._offsets[slot] = offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_HASH_BYTES).digest()
