"""Which leader wrote which offsets.

Each leader epoch starts at one offset and ends where the next one starts; the last one ends with the log. A follower (or a
consumer) that asks where an epoch ended finds the point up to which its history and the leader's agree.

Entries rise strictly in both columns. Source: KIP-101, KIP-279 (an unknown epoch is answered with the largest known one
below it), KIP-320.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ottla.errors import DecodeError
from ottla.types import NO_EPOCH, NO_OFFSET

CHECKPOINT_NAME = "leader-epoch-checkpoint"
_VERSION = 0


class EpochCache:
    """The epochs of one log, and where each started."""

    __slots__ = ("_epochs", "_start_offsets")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """``(epoch, start offset)``, oldest first."""
        return list(zip(self._epochs, self._start_offsets))

    @property
    def latest_epoch(self) -> int:
        """-1 without entries."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Starts ``epoch`` at ``start_offset``, unless it already has; entries that contradict it are removed. True when changed."""
        if epoch < 0 or (epoch == self.latest_epoch and start_offset >= self._start_offsets[-1]):
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._start_offsets[-1] >= start_offset):
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        return True

    def start_of(self, epoch: int) -> int | None:
        """Returns where the epoch starts; None when it is not known."""
        index = bisect_right(self._epochs, epoch) - 1
        return self._start_offsets[index] if index >= 0 and self._epochs[index] == epoch else None

    def end_offset_for(self, epoch: int, *, log_end_offset: int) -> tuple[int, int]:
        """Returns the largest epoch at or below ``epoch`` and where it ended; ``(-1, -1)`` for an epoch newer than all known.

        An epoch older than all known ends where the log's first one starts, and is answered under its own number.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        return (epoch if higher == 0 else self._epochs[higher - 1]), self._start_offsets[higher]

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch that wrote ``offset``; -1 when it is before the first entry."""
        index = bisect_right(self._start_offsets, offset)
        return NO_EPOCH if index == 0 else self._epochs[index - 1]

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forgets offsets from ``end_offset`` on. True when that removed something."""
        count = len(self._epochs)
        while self._epochs and self._start_offsets[-1] >= end_offset:
            self._epochs.pop()
            self._start_offsets.pop()
        return len(self._epochs) != count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Removes offsets below ``start_offset``: the epoch that spans it now starts there. True when something changed."""
        index = bisect_right(self._start_offsets, start_offset) - 1
        if index < 0 or (index == 0 and self._start_offsets[0] == start_offset):
            return False
        del self._epochs[:index]
        del self._start_offsets[:index]
        self._start_offsets[0] = start_offset
        return True

    def to_text(self) -> str:
        """Returns Kafka's ``leader-epoch-checkpoint``: version, number of lines, ``epoch start_offset`` a line."""
        lines = [f"{epoch} {start_offset}" for epoch, start_offset in self.entries]
        return "\n".join([str(_VERSION), str(len(lines)), *lines]) + "\n"

    @classmethod
    def from_text(cls, text: str) -> EpochCache:
        """Parses the file. DecodeError when the text is not such a file, complete and in order."""
        lines = text.split("\n")
        try:
            version, count = int(lines[0]), int(lines[1])
            entries = [(int(epoch), int(offset)) for epoch, offset in (line.split(" ") for line in lines[2 : 2 + count])]
        except (ValueError, IndexError):
            raise DecodeError(f"{CHECKPOINT_NAME} is not version, count and lines of epoch and offset") from None
        if version != _VERSION or count != len(entries) or lines[2 + count :] != [""]:
            raise DecodeError(f"{CHECKPOINT_NAME} has version {version} and {len(entries)} of {count} lines")
        cache = cls(entries)
        if cache.entries != entries:
            raise DecodeError(f"{CHECKPOINT_NAME} has epochs or offsets that do not rise")
        return cache
