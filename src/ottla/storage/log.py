"""The log of one partition: segments in a folder, appended at the end, read anywhere.

``log_start_offset <= log_end_offset``, and what lies below the ``recovery_point`` was synced; ``sync`` moves it. Appending is
described in ``appending.py``, what becomes of closed segments in ``closed.py``.

Calls that change the log (``flush``, ``sync``, truncation, deletion, ``close``) are made one at a time by its owner, but
``stage`` and reads may come while a ``flush`` or ``sync`` is suspended, and ``sync`` while a ``flush`` is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import DecodeError, StorageError
from ottla.ports import Disk, File
from ottla.records.epochs import CHECKPOINT_NAME
from ottla.storage.appending import Appended
from ottla.storage.closed import ClosedSegments
from ottla.storage.config import LogConfig
from ottla.storage.disk_errors import FULL, SHORTAGE
from ottla.storage.producers import SNAPSHOT_SUFFIX, ProducerStates
from ottla.storage.reading import FoundTimestamp, LogSlice, check_range, find_timestamp, largest_timestamp, read_slice, segment_index
from ottla.storage.recovery import offsets_of, rebuild_producers, recover, remove_segments
from ottla.storage.segment import overwrite

__all__ = ["Appended", "FoundTimestamp", "LogConfig", "LogSlice", "PartitionLog"]


class PartitionLog(ClosedSegments):
    """One partition's log. Made by ``open``."""

    __slots__ = ()

    @classmethod
    async def open(
        cls,
        disk: Disk,
        folder: str,
        *,
        config: LogConfig,
        now_ms: int,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        first_dirty_offset: int = 0,
        is_durable: bool = True,
    ) -> PartitionLog:
        """The log of the folder, which exists; recovered unless the caller found the mark of a clean stop (``recovery.py``).

        ``recovery_point``, ``log_start_offset`` and ``first_dirty_offset`` are what the checkpoint files say; 0 without them. The
        first segment of a new log is durable unless the caller sees to that. StorageError when the log is damaged below the
        recovery point.
        """
        recovered = await recover(
            disk, folder, start_offset=log_start_offset, recovery_point=recovery_point, clean=clean,
            index_interval_bytes=config.index_interval_bytes, is_durable=is_durable,
        )  # fmt: skip
        segments, end_offset = recovered.segments, recovered.end_offset
        producers = await rebuild_producers(disk, folder, segments, end_offset, now_ms=now_ms)
        for segment in segments:
            segment.appended_ms = min(now_ms, await disk.modified_ms(segment.path))
        for segment in segments[:-1]:
            segment.unload()
        log = cls(disk, folder, recovered, producers, config, now_ms)
        log._was_closed = recovered.walked == 0 or (len(segments) == 1 and segments[0].size == 0 and not recovered.cuts)
        if recovered.walked:
            log._recovery_point = min(max(recovery_point, segments[0].base_offset), end_offset)
            log._unsynced = segments[-recovered.walked : -1]
            log._epochs_changed = log._folder_changed = True
        if log_start_offset > end_offset:  # records were deleted up to there, and then lost their successors
            await log.truncate_fully_and_start_at(log_start_offset)
        else:
            log.advance_log_start_offset(log_start_offset)
            log._epochs_changed |= log.epochs.truncate_from_start(log.log_start_offset)
            if first_dirty_offset <= segments[-1].base_offset:
                log.first_dirty_offset = max(first_dirty_offset, log.log_start_offset)
        return log

    # -- what there is

    @property
    def recovery_point(self) -> int:
        """All offsets below survive a power cut. The owner checkpoints it."""
        return self._recovery_point

    @property
    def unsynced_messages(self) -> int:
        """For ``flush.messages``."""
        return self._end_offset - self._recovery_point

    @property
    def unsynced_since_ms(self) -> int:
        """When the oldest batch that is not synced was staged, for ``flush.ms``; -1 when there is none."""
        return self._unsynced_since_ms

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a closed segment waits for a ``sync``, which the owner gives it soon, whatever ``flush.*`` says."""
        return bool(self._unsynced)

    @property
    def producers(self) -> ProducerStates:
        return self._producers

    # -- reading

    async def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one_message: bool = True) -> LogSlice | None:
        """Batches of one segment from the one that holds ``offset``, none that begins at or after ``end_offset``.

        At most ``max_bytes``, the last batch cut off if need be, yet with ``min_one_message`` the first one whole. None when
        there is nothing to read. OFFSET_OUT_OF_RANGE outside the log; StorageError when the disk fails or the file is damaged,
        and the log ``is_failed``.
        """

        async def look() -> LogSlice | None:
            check_range(offset, log_start_offset=self._start_offset, log_end_offset=self._end_offset)
            end = min(end_offset, self._end_offset)
            if offset >= end:
                return None
            return await read_slice(
                self.segments, self._places, offset, max_bytes=max_bytes, end_offset=end, log_end_offset=self._end_offset,
                min_one_message=min_one_message,
            )  # fmt: skip

        try:
            return await self._undisturbed(look)
        except (OSError, DecodeError) as error:
            raise self._unreadable(error) from error

    async def offset_for_timestamp(self, timestamp_ms: int) -> FoundTimestamp | None:
        """The first record at or after the time. DecodeError when the records of a batch are not what its header says."""
        try:
            return await self._undisturbed(
                lambda: find_timestamp(self._disk, self.segments, self._places, timestamp_ms, start_offset=self._start_offset)
            )
        except OSError as error:
            raise self._unreadable(error) from error

    async def offset_of_max_timestamp(self) -> FoundTimestamp | None:
        """The first record that has the largest timestamp of all; None without timestamps. Errors as ``offset_for_timestamp``."""
        try:
            largest = await self._undisturbed(
                lambda: largest_timestamp(self._disk, self.segments, self._places, start_offset=self._start_offset)
            )
        except OSError as error:
            raise self._unreadable(error) from error
        return None if largest < 0 else await self.offset_for_timestamp(largest)

    def _unreadable(self, error: OSError | DecodeError) -> StorageError:
        """What a reader is told. The log fails: with its disk when that is at fault, alone when headers are not what was written."""
        if isinstance(error, DecodeError):
            self.fail()
        else:
            self.on_disk_error(error)
        return StorageError(f"the log in {self._folder} cannot be read: {error}")

    def enter_epoch(self, epoch: int) -> None:
        """A leader of this epoch begins at the log's end, whether it ever appends or not (KIP-101)."""
        if not self.has_pending and self.epochs.assign(epoch, self._end_offset):
            self._epochs_changed = True

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """``(epoch, end offset)`` of the largest epoch at or below ``epoch``; ``(-1, -1)`` when it is newer than all known."""
        return self.epochs.end_offset_for(epoch, log_end_offset=self._end_offset)

    # -- the two ends

    async def truncate_to(self, offset: int) -> None:
        """Nothing is left at or after ``offset``; a batch that holds it goes whole. Nothing may be staged.

        The owner checkpoints a recovery point of 0 before, and the one that there is then after: a log that ends below its
        checkpointed recovery point is taken for damaged.
        """
        assert not self.has_pending, "what is staged is written or dropped before a log is truncated"
        if offset >= self._end_offset:
            return
        if offset <= self.segments[0].base_offset:
            await self.truncate_fully_and_start_at(offset)
            return
        keep = segment_index(self.segments, offset - 1)
        await remove_segments(self._disk, self._folder, self.segments, keep + 1)
        segment = self.segments[keep]
        found = await segment.find(offset)
        if found is not None:
            await segment.truncate(found[0])
            offset = found[1].base_offset
        else:
            await segment.rebuild()
        await self._after_truncation(offset)

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """The log is empty and begins at ``offset``."""
        assert not self.has_pending, "what is staged is written or dropped before a log is truncated"
        await remove_segments(self._disk, self._folder, self.segments, 0)
        self.segments.append(await self._new_segment(offset))
        self._start_offset = offset
        self.epochs.truncate_from_end(0)
        await self._after_truncation(offset)

    async def _after_truncation(self, end_offset: int) -> None:
        self._end_offset = self._next_offset = end_offset
        self._was_closed = False
        self._recovery_point = min(self._recovery_point, end_offset)
        self._start_offset = min(self._start_offset, end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, self.segments[-1].base_offset)
        self._unsynced = [segment for segment in self._unsynced if segment in self.segments[:-1]]
        self._places.forget()
        self.epochs.truncate_from_end(end_offset)
        await self._disk.write_file_atomic(f"{self._folder}/{CHECKPOINT_NAME}", self.epochs.to_text().encode())
        self._producers = await rebuild_producers(self._disk, self._folder, self.segments, end_offset, now_ms=self._latest_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Producers silent for ``producer.id.expiration.ms`` are forgotten; how many were."""
        count = self._producers.expire(now_ms, self.config.producer_id_expiration_ms)
        self._was_closed &= not count
        return count

    # -- its place

    @property
    def folder(self) -> str:
        return self._folder

    def relocate(self, folder: str, files: Sequence[File]) -> None:
        """The log lies in another folder, where all of it is durable; ``files`` are those of its segments. Readers are not disturbed.

        Only between flushes and syncs. What is staged will be written there. The old folder and all in it are the owner's to remove.
        """
        assert not self._is_flushing, "nothing is being written"
        self.segments[:] = [segment.relocated(folder, file) for segment, file in zip(self.segments, files, strict=True)]
        for segment in self.segments[:-1]:
            segment.unload()
        self._folder = folder
        self._was_closed = False
        self._recovery_point = self._end_offset
        self._unsynced_since_ms = -1
        self._epochs_changed = self._folder_changed = False
        self._unsynced.clear()
        self._deleted.clear()
        self._places.forget()

    # -- durability

    async def sync(self) -> None:
        """All that was in the log at the call survives a power cut, and the recovery point is there.

        Closed segments are synced with their indexes. Those of the last segment are only in memory: it lies behind the recovery
        point in part, so a recovery walks it and makes them anew. StorageError when the disk refused; the log ``is_failed``.
        """
        if self.is_failed:
            raise StorageError(f"the log in {self._folder} has failed")
        end_offset, closed, last = self._end_offset, list(self._unsynced), self.segments[-1]
        unsynced_since_ms, self._unsynced_since_ms = self._unsynced_since_ms, -1
        are_epochs_written = False
        try:
            await self._write_epochs()
            are_epochs_written = True
            for segment in closed:
                await segment.sync(with_indexes=True)
                segment.synced()
            await last.sync(with_indexes=False)
            if self._folder_changed:
                await self._disk.sync_dir(self._folder)
                self._folder_changed = False
        except OSError as error:
            passes = error.errno in SHORTAGE or (error.errno in FULL and not are_epochs_written)
            if passes and not self.config.fails_when_full:
                self._unsynced_since_ms = unsynced_since_ms  # no file failed to become durable: the next sync does it all
            elif error.errno in FULL:  # the system had taken the bytes, and has no place for them
                self.fail_with_disk()
            else:
                self.on_disk_error(error)
            raise StorageError(f"the log in {self._folder} cannot be synced: {error}") from error
        self._unsynced = [segment for segment in self._unsynced if segment not in closed]
        self._recovery_point = max(self._recovery_point, end_offset)

    async def _write_epochs(self) -> None:
        if self._epochs_changed:
            text = self.epochs.to_text()
            await self._disk.write_file_atomic(f"{self._folder}/{CHECKPOINT_NAME}", text.encode())
            self._epochs_changed = self.epochs.to_text() != text  # another leader may have come meanwhile

    async def close(self, *, is_durable: bool = True) -> None:
        """The indexes of the last segment and a snapshot of the producers are files, the files are closed, and all is durable.

        Unless the caller sees to that, and then calls ``closed_durably``.
        """
        assert not self.has_pending, "what is staged is written before a log is closed"
        if not self.is_failed and not self._is_as_opened:
            await self.segments[-1].write_indexes()
            await overwrite(self._disk, self._snapshot_path(self._end_offset), self._producers.to_snapshot())
            keep = {self._end_offset, *(segment.base_offset for segment in self.segments)}
            for snapshot in await offsets_of(self._disk, self._folder, SNAPSHOT_SUFFIX):
                if snapshot not in keep:
                    await self._disk.remove(self._snapshot_path(snapshot))
            self._epochs_changed = self._folder_changed = True
            if is_durable:
                self._unsynced.append(self.segments[-1])
                await self.sync()
            else:
                await overwrite(self._disk, f"{self._folder}/{CHECKPOINT_NAME}", self.epochs.to_text().encode())
        self.segments[-1].unload()
        self.is_failed = True  # whatever comes now comes too late

    @property
    def _is_as_opened(self) -> bool:
        """Whether the files say all that there is: nothing has changed since a start that found them closed, or made them."""
        return self._was_closed and self.appended_bytes == 0 and not self._folder_changed and not self._epochs_changed

    def closed_durably(self) -> None:
        """All that ``close`` wrote is durable."""
        self._recovery_point = self._end_offset
