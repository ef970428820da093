"""The log of one partition: segments in a partition directory, appended at the end, read anywhere.

A log has a tail (``tail.py``: staging and writing), segments (``segments.py``), an epoch file, producers, and a compaction
(``compacting.py``). Here they are put together: reading, the two ends, and what survives a power cut.
``log_start_offset <= log_end_offset``, and what is below the ``recovery_point`` was synced; ``sync`` moves it.

Calls that change the log (``flush``, ``sync``, truncation, deletion, ``close``) are made one at a time by its owner, but
``stage`` and reads may come while a ``flush`` or ``sync`` is suspended, and ``sync`` while a ``flush`` is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.errors import DecodeError, StorageError
from ottla.ports import Disk, File
from ottla.records.epochs import CHECKPOINT_NAME, EpochCache
from ottla.storage.config import LogConfig
from ottla.storage.directory.epoch_file import EpochFile
from ottla.storage.health import LogHealth
from ottla.storage.log.aborted import AbortedInLog
from ottla.storage.log.compacting import Compaction
from ottla.storage.log.durability import Durability
from ottla.storage.log.reading import FoundTimestamp, LogSlice, check_range, find_timestamp, largest_timestamp, read_slice
from ottla.storage.log.retention import retained_from
from ottla.storage.log.segments import LogSegments
from ottla.storage.log.tail import Tail
from ottla.storage.producers import ProducerStates
from ottla.storage.recovery.recovery import Recovered, read_aborted, rebuild_producers, recover
from ottla.storage.segment.files import overwrite
from ottla.storage.segment.segment import Segment


class PartitionLog:
    """One partition's log. Made by ``open``."""

    __slots__ = (
        "_disk", "_epoch_file", "_producers_changed", "_segments", "_was_closed", "compaction", "config", "cuts",
        "durability", "flush", "health", "log_start_offset", "stage", "tail",
    )  # fmt: skip

    def __init__(self, disk: Disk, directory: str, recovered: Recovered, producers: ProducerStates, config: LogConfig, now_ms: int) -> None:
        self._disk: Final = disk
        self.health: Final = LogHealth()
        self._segments: Final = LogSegments(disk, directory, recovered.segments, config, self.health)
        self._epoch_file: Final = EpochFile(disk, recovered.epochs)
        end_offset = recovered.end_offset
        self.tail: Final = Tail(self._segments, self._epoch_file, producers, self.health, end_offset=end_offset, now_ms=now_ms)
        self.health.drop_staged = self.tail.drop_staged
        self.durability: Final = Durability(disk, self._segments, self._epoch_file, self.tail, self.health)
        self.compaction: Final = Compaction(disk, self._segments, self.tail, self.health)
        self.stage: Final = self.tail.stage  # bound once: these two are called for each batch
        self.flush: Final = self.tail.flush
        self.config = config
        self.cuts: Final = recovered.cuts  # what the recovery removed when the log was opened
        self.log_start_offset = recovered.segments[0].base_offset
        self._was_closed = recovered.walked == 0 or (
            len(recovered.segments) == 1 and recovered.segments[0].size == 0 and not recovered.cuts
        )
        self._producers_changed = False  # by time alone
        if recovered.walked:
            self._segments.unsynced = recovered.segments[-recovered.walked : -1]
            self._epoch_file.is_changed = self._segments.is_directory_changed = True

    @classmethod
    async def open(
        cls, disk: Disk, directory: str, *, config: LogConfig, now_ms: int, clean: bool, recovery_point: int = 0, log_start_offset: int = 0,
        first_dirty_offset: int = 0, is_durable: bool = True,
    ) -> PartitionLog:  # fmt: skip
        """Opens the log of an existing directory; recovers it unless the caller found the mark of a clean stop (``recovery.py``).

        ``recovery_point``, ``log_start_offset`` and ``first_dirty_offset`` are what the checkpoint files say; 0 without them. The
        first segment of a new log is durable unless the caller sees to that. StorageError when the log is damaged below the
        recovery point.
        """
        recovered = await recover(
            disk, directory, start_offset=log_start_offset, recovery_point=recovery_point, clean=clean,
            index_interval_bytes=config.index_interval_bytes, is_durable=is_durable,
        )  # fmt: skip
        segments, end_offset = recovered.segments, recovered.end_offset
        walked_from = segments[-recovered.walked].base_offset if recovered.walked else None
        producers, replayed = await rebuild_producers(disk, directory, segments, end_offset, now_ms=now_ms, read_from=walked_from)
        closed, growing = await read_aborted(disk, directory, segments, replayed, walked=recovered.walked)
        for segment in segments:
            segment.appended_ms = min(now_ms, await disk.modified_ms(segment.path))
        for segment in segments[:-1]:
            segment.unload()
        log = cls(disk, directory, recovered, producers, config, now_ms)
        log._segments.aborted.fill(closed, growing)
        if recovered.walked:
            log.durability.recovery_point = min(max(recovery_point, segments[0].base_offset), end_offset)
        if log_start_offset > end_offset:  # records were deleted up to there, and then lost their successors
            await log.truncate_fully_and_start_at(log_start_offset)
        else:
            log.advance_log_start_offset(log_start_offset)
            log._epoch_file.truncate_from_start(log.log_start_offset)
            if first_dirty_offset <= segments[-1].base_offset:
                log.compaction.first_dirty_offset = max(first_dirty_offset, log.log_start_offset)
        log.producers.may_lack_some |= log.log_start_offset > 0  # compaction keeps the last batch of each that is known
        log.durability.start_is_kept(log.log_start_offset)
        return log

    def configure(self, config: LogConfig) -> None:
        """Applies the configuration from the next batch on."""
        self.config = self._segments.config = config
        self.tail.configure(config)

    # -- what there is

    @property
    def directory(self) -> str:
        return self._segments.directory

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last one grows."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments.all)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last one written."""
        return self.tail.end_offset

    @property
    def epochs(self) -> EpochCache:
        return self._epoch_file.epochs

    @property
    def producers(self) -> ProducerStates:
        return self.tail.producers

    @property
    def aborted(self) -> AbortedInLog:
        """Which transactions of the log were aborted."""
        return self._segments.aborted

    @property
    def is_failed(self) -> bool:
        return self.health.is_failed

    @property
    def lacks_offsets(self) -> bool:
        """Whether compaction may have left segments that end before the next one starts."""
        return self.config.is_compacted or self.compaction.first_dirty_offset > self.log_start_offset

    # -- reading

    async def read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_message: bool = True, with_aborted: bool = False
    ) -> LogSlice | None:
        """Reads batches of one segment, from the batch that holds ``offset``; none starts at or after ``end_offset``.

        At most ``max_bytes``, the last batch cut off if need be, yet with ``min_one_message`` the first one completely. None when
        there is nothing to read. OFFSET_OUT_OF_RANGE outside the log; StorageError when the disk fails or a file is damaged, and the log
        ``is_failed``.
        """
        segments = self._segments

        async def look() -> LogSlice | None:
            log_end_offset = self.tail.end_offset
            check_range(offset, log_start_offset=self.log_start_offset, log_end_offset=log_end_offset)
            end = min(end_offset, log_end_offset)
            if offset >= end:
                return None
            part = await read_slice(
                segments.all, segments.places, offset, max_bytes=max_bytes, end_offset=end, log_end_offset=log_end_offset,
                min_one_message=min_one_message,
            )  # fmt: skip
            if with_aborted and part is not None and len(segments.aborted):
                part.aborted = await segments.aborted.beginnings(offset, min(end, part.end_offset))
            return part

        try:
            return await segments.undisturbed(look)
        except (OSError, DecodeError) as error:
            raise self._unreadable(error) from error

    async def offset_for_timestamp(self, timestamp_ms: int) -> FoundTimestamp | None:
        """Returns the first record at or after the time. DecodeError when the records of a batch are not what its header says."""
        segments = self._segments
        try:
            return await segments.undisturbed(
                lambda: find_timestamp(self._disk, segments.all, segments.places, timestamp_ms, start_offset=self.log_start_offset)
            )
        except OSError as error:
            raise self._unreadable(error) from error

    async def offset_of_max_timestamp(self) -> FoundTimestamp | None:
        """Returns the first record that has the largest timestamp of all; None without timestamps. Errors as ``offset_for_timestamp``."""
        segments = self._segments
        try:
            largest = await segments.undisturbed(
                lambda: largest_timestamp(self._disk, segments.all, segments.places, start_offset=self.log_start_offset)
            )
        except OSError as error:
            raise self._unreadable(error) from error
        return None if largest < 0 else await self.offset_for_timestamp(largest)

    def _unreadable(self, error: OSError | DecodeError) -> StorageError:
        """Returns the error for a reader, and fails the log: with its disk when that is at fault, alone when headers are damaged."""
        if isinstance(error, DecodeError):
            self.health.fail_damaged(error.message)
        else:
            self.health.on_disk_error(error)
        return StorageError(f"the log in {self.directory} cannot be read: {error}")

    def enter_epoch(self, epoch: int) -> None:
        """Starts this leader epoch at the log's end, whether its leader ever appends or not (KIP-101)."""
        assert not self.tail.has_unwritten, "an epoch begins where the last one has ended"
        self._epoch_file.assign(epoch, self.tail.end_offset)
        self.tail.remember_producers()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns ``(epoch, end offset)`` of the largest epoch at or below ``epoch``; ``(-1, -1)`` when it is newer than all known."""
        return self.epochs.end_offset_for(epoch, log_end_offset=self.tail.end_offset)

    # -- the start

    def advance_log_start_offset(self, offset: int) -> None:
        """Ends serving records below ``offset``. The owner checkpoints the offset before it lets segments be deleted."""
        assert offset <= self.tail.end_offset, "a log does not begin after its end"
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.producers.may_lack_some = True
            self.compaction.first_dirty_offset = max(self.compaction.first_dirty_offset, offset)
            self._epoch_file.truncate_from_start(offset)

    async def retained_from(self, now_ms: int) -> int:
        """Returns the offset below which retention keeps nothing; the log's start when all is kept.

        When everything is too old, that includes the last segment: the next flush closes it, and it is deleted after that.
        """

        async def look() -> int:
            kept, is_last_due = await retained_from(self._segments, config=self.config, start_offset=self.log_start_offset, now_ms=now_ms)
            if is_last_due:
                self.tail.close_segment_soon()
            committed_end = self.tail.committed_end
            return max(self.log_start_offset, kept if committed_end is None else min(kept, committed_end()))

        return await self._segments.undisturbed(look)

    async def delete_segments_below(self, offset: int, *, now_ms: int = 0, one_by_one: bool = False) -> int:
        """Drops closed segments all of whose records are below ``offset`` from the log. Returns how many.

        Their files stay as ``.deleted`` ones for ``file.delete.delay.ms``. ``one_by_one`` is for when no checkpoint says where the
        log starts: each is durably removed before the next, so that no power cut leaves a hole.
        """
        count, segments = 0, self._segments
        while len(segments.all) > 1 and segments.all[1].base_offset <= offset:
            segment = segments.drop_first()
            self.advance_log_start_offset(segments.all[0].base_offset)
            if one_by_one:
                await segments.remove_durably(segment)
                self.durability.start_is_kept(segments.all[0].base_offset)
            else:
                await segments.retire(segment, now_ms)
            count += 1
        if count:
            segments.is_directory_changed = True
            await segments.remove_old_snapshots()
        return count

    @property
    def has_deleted(self) -> bool:
        """Whether ``.deleted`` files wait for their time."""
        return self._segments.has_deleted

    async def remove_deleted(self, now_ms: int) -> None:
        """Removes files deleted longer than ``file.delete.delay.ms`` ago."""
        await self._segments.remove_deleted(now_ms)

    # -- the end

    def begin_truncation(self, offset: int) -> bool:
        """Prepares a cut at ``offset`` (0: the log starts over). True when the owner must write the checkpoints before it cuts.

        Without that a recovery takes the log for damaged. Until ``durability.truncation_ended`` it starts in the cut segment, or earlier.
        """
        return offset < self.tail.end_offset and self.durability.begin_truncation(self._segments.base_of(offset))

    async def truncate_to(self, offset: int, *, is_durable: bool = True) -> None:
        """Removes everything at or after ``offset``; a batch that holds it is removed entirely. Nothing may be staged.

        ``begin_truncation`` comes before. It survives a power cut, unless the caller sees to that: before it does, nothing may be appended.
        """
        assert not self.tail.has_unwritten, "what is staged is written or dropped before a log is truncated"
        if offset >= self.tail.end_offset:  # an epoch in which nothing was written is forgotten all the same
            self._epoch_file.truncate_from_end(offset)
            self.tail.were_truncated(self.tail.end_offset)
            return
        if offset <= self._segments.all[0].base_offset:
            await self.truncate_fully_and_start_at(offset, is_durable=is_durable)
            return
        await self._after_truncation(await self._segments.truncate_to(offset, is_durable=is_durable), is_durable=is_durable)

    async def truncate_fully_and_start_at(self, offset: int, *, is_durable: bool = True) -> None:
        """Empties the log, which starts at ``offset`` then; else as ``truncate_to``."""
        assert not self.tail.has_unwritten, "what is staged is written or dropped before a log is truncated"
        await self._segments.start_over_at(offset, is_durable=is_durable)
        self.durability.start_is_kept(offset if is_durable else 0)
        self.tail.remembered.clear()
        self.log_start_offset = offset
        self.epochs.truncate_from_end(0)
        await self._after_truncation(offset, is_durable=is_durable)

    async def _after_truncation(self, end_offset: int, *, is_durable: bool) -> None:
        segments, remembered = self._segments, self.tail.remembered
        may_lack_some = self.producers.may_lack_some or self.log_start_offset > 0
        found, remembered.is_held = remembered.at(end_offset), True
        self.tail.were_truncated(end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.durability.were_truncated(start_offset=self.log_start_offset)
        self.compaction.first_dirty_offset = min(self.compaction.first_dirty_offset, segments.all[-1].base_offset)
        segments.were_truncated()
        self.epochs.truncate_from_end(end_offset)
        self._epoch_file.is_changed = True  # a recovery takes the epochs of the cut segment from its batches
        if is_durable:
            await self._epoch_file.write_if_room(self.directory)
        self.tail.producers, _ = await rebuild_producers(
            self._disk, self.directory, segments.all, end_offset, now_ms=self.tail.latest_ms, is_durable=is_durable, remembered=found
        )
        self.producers.may_lack_some |= may_lack_some
        remembered.is_held = False

    def expire_producers(self, now_ms: int) -> int:
        """Forgets producers silent for ``producer.id.expiration.ms``. Returns how many."""
        count = self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        self._producers_changed |= count > 0
        return count

    # -- its place

    def relocate(self, directory: str, files: Sequence[File]) -> None:
        """Moves the log to another directory, where all of it is durable; ``files`` are its segments' files. Readers are not disturbed.

        Only between flushes and syncs. What is staged will be written there. The old directory is the owner's to remove.
        """
        assert not self.tail.is_flushing, "nothing is being written"
        self._segments.relocate(directory, files)
        self._epoch_file.is_changed = True  # the copy has its epochs of some time ago: a leader may have been elected since
        self.durability.all_is_durable()
        self.tail.unsynced_since_ms = -1

    def retire(self) -> None:
        """Ends all reading and writing: the partition was deleted. What was staged is dropped."""
        self._segments.retire_all()
        self.health.retire()

    def let_go(self) -> None:
        """Closes the files of a retired log, once no region of them is being sent. Nothing is being written or replaced."""
        self._segments.let_go()

    # -- durability

    @property
    def recovery_point(self) -> int:
        """All offsets below survive a power cut. The owner checkpoints it."""
        return self.durability.recovery_point

    async def sync(self) -> None:
        """Makes all that is in the log at the call durable. StorageError when the disk refused; the log ``is_failed``."""
        await self.durability.sync()

    async def close(self, *, is_durable: bool = True) -> None:
        """Writes the last segment's indexes and the producers to files, durably unless the caller sees to it: ``closed_durably``."""
        assert not self.tail.has_pending, "what is staged is written before a log is closed"
        segments = self._segments
        if not self.is_failed and not self._is_as_opened:
            await segments.write_indexes()
            await overwrite(self._disk, segments.snapshot_path(self.tail.end_offset), self.producers.to_snapshot())
            await segments.remove_needless_snapshots(self.tail.end_offset)
            self._epoch_file.is_changed = segments.is_directory_changed = True
            if is_durable:
                segments.unsynced.append(segments.all[-1])
                await self.sync()
            else:
                await overwrite(self._disk, f"{self.directory}/{CHECKPOINT_NAME}", self.epochs.to_text().encode())
        segments.all[-1].unload()
        self.health.is_failed = True  # whatever comes now comes too late

    @property
    def _is_as_opened(self) -> bool:
        """Whether the files say all that there is: nothing has changed since a start that found them closed, or made them."""
        is_changed = self._epoch_file.is_changed or self._segments.is_directory_changed or self._segments.are_replaced
        return self._was_closed and not is_changed and self.tail.appended_bytes == 0 and not self._producers_changed

    def closed_durably(self) -> None:
        """Notes that all that ``close`` wrote is durable."""
        self.durability.all_is_durable()
