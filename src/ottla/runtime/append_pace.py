"""Whether an append is quick enough for the event loop.

Into pages that the kernel has at hand 256 KiB are written in 80 us, less than a thread hop costs; where it must find fresh ones,
or waits for the disk because too much is dirty, the same append takes a millisecond or a hundred. So the last appends
decide: the loop writes what it expects to take ``QUICK_NS`` at most, a thread the rest, and each reports the time it took.
"""

from __future__ import annotations

import time
from typing import Final

QUICK_NS: Final = 350_000
"""So long one append may hold the loop: a hop costs it 100 us and more, and twice as much processor time (docs/decisions/0004)."""
STALLED_NS: Final = 2_000_000
STALL_NS: Final = 1_000_000_000
"""After an append that held the loop for ``STALLED_NS``, threads do it for so long."""
_WEIGHT: Final = 8  # a quicker append counts for so much of the new estimate; a slower one is believed at once


class AppendPace:
    """The cost of appends on one file system. Threads may report at the same time: a lost estimate is followed by the next."""

    __slots__ = ("_ns_per_byte", "_stalled_until_ns")

    def __init__(self) -> None:
        self._ns_per_byte = 0.0
        self._stalled_until_ns = 0

    def is_quick(self, size_bytes: int) -> bool:
        """True when an append of this size is expected to take ``QUICK_NS`` at most."""
        return size_bytes * self._ns_per_byte <= QUICK_NS and time.monotonic_ns() >= self._stalled_until_ns

    def wrote(self, size_bytes: int, took_ns: int) -> None:
        """Notes that an append took processor time for so long."""
        ns_per_byte = took_ns / size_bytes
        if ns_per_byte < self._ns_per_byte:
            ns_per_byte = self._ns_per_byte + (ns_per_byte - self._ns_per_byte) / _WEIGHT
        self._ns_per_byte = ns_per_byte

    def wrote_on_loop(self, size_bytes: int, took_ns: int) -> None:
        """Notes as ``wrote``, of an append that all others waited for, whatever it waited for itself."""
        self.wrote(size_bytes, took_ns)
        if took_ns > STALLED_NS:
            self._stalled_until_ns = time.monotonic_ns() + STALL_NS
