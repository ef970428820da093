"""What the quorum knows of its log: where it starts and ends, what is durable, which epochs and snapshots it has.

The records themselves are the shell's. Two logs that have the same epoch at the same offset are the same up to there; so the epochs and
where they start are enough to find where two logs part (KIP-101, KIP-279), and who may lead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.consensus.calls import EpochEnd, SnapshotId
from ottla.records.epochs import EpochCache

Snapshots = tuple[tuple[SnapshotId, int], ...]
"""Oldest first, each with its size in bytes."""


class LogShape:
    """The shape of one log. ``version`` counts how often it was cut, so that an fsync from before a cut is not taken for one after it."""

    __slots__ = ("end_offset", "epochs", "flushed_offset", "snapshots", "start_epoch", "start_offset", "version")

    def __init__(
        self,
        epochs: Iterable[tuple[int, int]] = (),
        *,
        start_offset: int = 0,
        start_epoch: int = 0,
        end_offset: int = 0,
        snapshots: Snapshots = (),
    ) -> None:
        """Makes the shape; ``start_epoch`` is the epoch of the record before the first one, in a snapshot; 0 for a log that starts at 0.

        All of the log is taken to be durable.
        """
        self.epochs = EpochCache(epochs)
        self.start_offset = start_offset
        self.start_epoch = start_epoch
        self.end_offset = end_offset  # start_offset <= end_offset
        self.flushed_offset = end_offset  # <= end_offset
        self.snapshots = snapshots
        self.version = 0

    def copy(self) -> LogShape:
        made = LogShape(
            self.epochs.entries,
            start_offset=self.start_offset,
            start_epoch=self.start_epoch,
            end_offset=self.end_offset,
            snapshots=self.snapshots,
        )
        made.flushed_offset, made.version = self.flushed_offset, self.version
        return made

    def key(self) -> tuple[Any, ...]:
        """Returns a key that is equal for logs of the same shape."""
        return self.start_offset, self.start_epoch, self.end_offset, self.flushed_offset, self.snapshots, *self.epochs.entries

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot that the log follows; 0 for neither."""
        return max(self.epochs.latest_epoch, self.start_epoch)

    @property
    def flushed_epoch(self) -> int:
        """As ``last_epoch``, of what is durable."""
        return max(self.epochs.epoch_at(self.flushed_offset - 1), self.start_epoch)

    def is_at_most(self, last_epoch: int, end_offset: int) -> bool:
        """True when a log that ends so is at least as complete as this one: by epoch first, then by offset."""
        return (self.last_epoch, self.end_offset) <= (last_epoch, end_offset)

    def append(self, epoch: int, end_offset: int) -> None:
        """Appends records of that epoch, from the end to ``end_offset``."""
        assert end_offset > self.end_offset, "records take up offsets"
        assert epoch >= self.last_epoch, "epochs never go back in a log"
        self.epochs.assign(epoch, self.end_offset)
        self.end_offset = end_offset

    def truncate_to(self, end_offset: int) -> None:
        assert self.start_offset <= end_offset < self.end_offset, "a cut removes records, and none of a snapshot"
        self.epochs.truncate_from_end(end_offset)
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.version += 1

    def install(self, snapshot_id: SnapshotId, size: int) -> None:
        """Replaces the log by the snapshot."""
        self.epochs = EpochCache()
        self.start_offset = self.end_offset = self.flushed_offset = snapshot_id.end_offset
        self.start_epoch = snapshot_id.epoch
        self.snapshots = ((snapshot_id, size),)
        self.version += 1

    def start_at(self, start_offset: int) -> None:
        """Deletes records below that offset, which a snapshot has."""
        if start_offset > self.start_offset:
            self.start_epoch = max(self.epochs.epoch_at(start_offset - 1), self.start_epoch)
            self.epochs.truncate_from_start(start_offset)
            self.start_offset = start_offset

    def end_of(self, epoch: int) -> EpochEnd:
        """Returns the largest epoch at or below ``epoch`` and where it ends here; for an epoch newer than all, the end of the log."""
        found, end_offset = self.epochs.end_offset_for(epoch, log_end_offset=self.end_offset)
        return EpochEnd(self.last_epoch, self.end_offset) if found < 0 else EpochEnd(found, end_offset)

    def mismatch(self, fetch_offset: int, last_epoch: int) -> EpochEnd | SnapshotId | None:
        """Returns why a replica whose log ends so cannot continue with this one: the logs part, or start too late; None when it can."""
        if fetch_offset == 0 and last_epoch == 0 and self.start_offset == 0:
            return None
        if self.start_offset > 0 and (
            fetch_offset < self.start_offset
            or last_epoch < self.start_epoch
            or (fetch_offset == self.start_offset and last_epoch != self.start_epoch)
        ):
            return self.snapshots[-1][0]
        if fetch_offset == self.start_offset and last_epoch == self.start_epoch:
            return None
        end = self.end_of(last_epoch)
        return None if end.epoch == last_epoch and end.end_offset >= fetch_offset else end

    def parting_point(self, diverging: EpochEnd) -> int:
        """Returns up to where this log may agree with one whose ``diverging.epoch`` ends there; another round may show that it is less."""
        if diverging.epoch <= self.start_epoch:
            return max(self.start_offset, min(diverging.end_offset, self.end_offset))
        own = self.end_of(diverging.epoch)
        return min(own.end_offset, diverging.end_offset) if own.epoch == diverging.epoch else own.end_offset
