"""The producers of a log as they were at some offsets, in memory, so that a truncation need not read again what is before them.

One state is kept for each epoch's start, and for each time the checkpoints are written: a truncation starts after the high watermark, which
is near. Logs with very many producers are not cached here: they use the snapshot files at the start of each segment.
"""

from __future__ import annotations

from typing import Final

from ottla.storage.producers import ProducerStates

MARKS_MAX: Final = 4
PRODUCERS_MAX: Final = 1000


class RememberedProducers:
    """Snapshots of one log's producers, in the form of the files'; the newest is the last one."""

    __slots__ = ("_marks", "is_held")

    def __init__(self) -> None:
        self._marks: list[tuple[int, bytes]] = []
        self.is_held = False
        """While the log has been cut, and its producers are still those from before: nothing is remembered of them."""

    def remember(self, offset: int, producers: ProducerStates) -> None:
        """Remembers the producers at ``offset``, which is not before any other one."""
        if self.is_held or len(producers) > PRODUCERS_MAX or (self._marks and self._marks[-1][0] == offset):
            return
        self._marks.append((offset, producers.to_snapshot()))
        del self._marks[:-MARKS_MAX]

    def clear(self) -> None:
        """Forgets all: the log starts again elsewhere."""
        self._marks.clear()

    def at(self, end_offset: int) -> tuple[int, bytes] | None:
        """Returns the newest at or before ``end_offset``, where the log ends by now; later ones are forgotten."""
        while self._marks and self._marks[-1][0] > end_offset:
            self._marks.pop()
        return self._marks[-1] if self._marks else None
