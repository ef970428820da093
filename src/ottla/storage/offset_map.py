"""The newest offset of each key, in memory of a size that is fixed beforehand.

A slot has 24 bytes, as in Kafka: a hash of the key of 16 bytes, and an offset. Keys themselves are not kept, so the number of
keys that fit does not depend on how long they are. Two keys with the same hash would be taken for one; with 128 bits that
does not happen by chance, and blake2b does not let it happen on purpose.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

SLOT_BYTES: Final = 24
_HASH_BYTES: Final = 16


class OffsetMap:
    """Open addressing; ``is_full`` at the load factor, so that look-ups stay short."""

    __slots__ = ("_count_max", "_hashes", "_offsets", "_slot_count", "count")

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        self._slot_count = max(2, size_bytes // SLOT_BYTES)
        self._count_max = max(1, min(int(self._slot_count * load_factor), self._slot_count - 1))
        self._hashes = bytearray(self._slot_count * _HASH_BYTES)  # zeroed pages: those never touched cost no memory
        self._offsets = memoryview(bytearray(self._slot_count * 8)).cast("q")  # one more than the offset; 0 for a free slot
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self._count_max

    def put(self, key: bytes, offset: int) -> None:
        """``offset`` is the key's newest; not to be called with a new key when full."""
        slot, digest = self._find(key)
        if not self._offsets[slot]:
            assert not self.is_full, "whoever fills a map stops when it is full"
            self.count += 1
            self._hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] = digest
        self._offsets[slot] = offset + 1

    def get(self, key: bytes) -> int:
        """-1 for a key that is not known."""
        return self._offsets[self._find(key)[0]] - 1

    def _find(self, key: bytes) -> tuple[int, bytes]:
        """The key's slot, or the free one where it belongs."""
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        slot = int.from_bytes(digest[:8], "big") % self._slot_count
        while self._offsets[slot] and self._hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] != digest:
            slot = slot + 1 if slot + 1 < self._slot_count else 0
        return slot, digest
