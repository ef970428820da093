"""What of a log survives a power cut: everything below its recovery point, which ``sync`` moves, and where it starts.

``flush.messages`` bounds what may be acknowledged before it is synced (``owes_sync``); ``flush.ms`` is for who calls ``sync``, by
``unsynced_since_ms`` of the tail. A closed segment is synced soon, whatever both say.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import StorageError
from ottla.ports import Disk
from ottla.storage.directory.epoch_file import EpochFile
from ottla.storage.disk_errors import FULL, SHORTAGE
from ottla.storage.health import LogHealth
from ottla.storage.log.segments import LogSegments
from ottla.storage.log.tail import Tail


class Durability:
    """The durability of one log. All offsets below ``recovery_point`` survive a power cut; the owner checkpoints it."""

    __slots__ = ("_bound", "_disk", "_epoch_file", "_health", "_is_lowered", "_segments", "_tail", "recovery_point", "start_offset")

    def __init__(self, disk: Disk, segments: LogSegments, epoch_file: EpochFile, tail: Tail, health: LogHealth) -> None:
        self._disk: Final = disk
        self._segments: Final = segments
        self._epoch_file: Final = epoch_file
        self._tail: Final = tail
        self._health: Final = health
        self.recovery_point = tail.end_offset
        self.start_offset = segments.all[0].base_offset
        """The next start of this broker finds the log start here, or later: no later than the log starts now."""
        self._bound: int | None = None  # of the recovery point, while the log is about to be cut
        self._is_lowered = False  # by that, and the log was not cut since: who was to write the checkpoint may have failed

    @property
    def unsynced_messages(self) -> int:
        """How many offsets a power cut may take."""
        return self._tail.end_offset - self.recovery_point

    @property
    def owes_sync(self) -> bool:
        """Whether ``flush.messages`` does not allow what is in the log to be acknowledged before it is synced."""
        return self._tail.end_offset - self.recovery_point >= self._tail.config.flush_messages

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a closed segment waits for a ``sync``."""
        return bool(self._segments.unsynced)

    async def sync(self) -> None:
        """Makes all that is in the log at the call durable against a power cut, and moves the recovery point there.

        Closed segments are synced with their indexes. The last segment's indexes are only in memory: a part of it is after the
        recovery point, so a recovery walks it and rebuilds them. StorageError when the disk refused; the log has failed then.
        """
        segments, tail = self._segments, self._tail
        directory = segments.directory
        self._health.check(directory)
        end_offset, closed, last = tail.end_offset, list(segments.unsynced), segments.all[-1]
        unsynced_since_ms, tail.unsynced_since_ms = tail.unsynced_since_ms, -1
        are_epochs_written = False
        try:
            await self._epoch_file.write_changed(directory)
            are_epochs_written = True
            for segment in closed:
                await segment.sync(with_indexes=True)
                segment.synced()
            await last.sync(with_indexes=False)
            if segments.is_directory_changed:
                await self._disk.sync_dir(directory)
                segments.is_directory_changed = False
        except OSError as error:
            passes = error.errno in SHORTAGE or (error.errno in FULL and not are_epochs_written)
            if passes and not tail.config.fails_when_full:
                tail.unsynced_since_ms = unsynced_since_ms  # no file failed to become durable: the next sync does it all
            elif error.errno in FULL:  # the system had taken the bytes, and has no place for them
                self._health.fail_with_disk(error)
            else:
                self._health.on_disk_error(error)
            raise StorageError(f"the log in {directory} cannot be synced: {error}") from error
        segments.unsynced = [segment for segment in segments.unsynced if segment not in closed]
        self.recovery_point = max(self.recovery_point, end_offset if self._bound is None else min(end_offset, self._bound))

    def begin_truncation(self, offset: int) -> bool:
        """Keeps the recovery point at or below ``offset`` until ``truncation_ended``. True when a later one may have been checkpointed."""
        self._bound = offset
        self._is_lowered |= self.recovery_point > offset
        self.recovery_point = min(self.recovery_point, offset)
        return self._is_lowered

    def truncation_ended(self) -> None:
        """Ends a truncation: the log was cut, or will not be."""
        self._bound = None

    def start_is_kept(self, offset: int) -> None:
        """Notes that the disk has the log start at ``offset``, durably."""
        self.start_offset = max(self.start_offset, offset)

    def were_truncated(self, *, start_offset: int) -> None:
        """Moves the recovery point back to the end, in the checkpoint too; the log starts at ``start_offset``."""
        self.start_offset = min(self.start_offset, start_offset)
        self._is_lowered = False
        self.recovery_point = min(self.recovery_point, self._tail.end_offset)

    def all_is_durable(self) -> None:
        """Moves the recovery point to the end: another part has synced the entire log."""
        self.recovery_point = self._tail.end_offset if self._bound is None else min(self._tail.end_offset, self._bound)
