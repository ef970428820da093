"""What becomes of a log's closed segments: deleted when they are old, replaced by what compaction leaves of them.

A deleted segment's files are renamed at once and removed ``file.delete.delay.ms`` later. Readers that still have it open are
not disturbed by either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from ottla.storage import swap
from ottla.storage.appending import LogEnd
from ottla.storage.batch_cleaning import Producer
from ottla.storage.cleaning import CLEANED_SUFFIX, Cleaned, CleanRequest, Source
from ottla.storage.config import LONG_MAX
from ottla.storage.dirtiness import Dirtiness
from ottla.storage.producers import SNAPSHOT_SUFFIX
from ottla.storage.recovery import offsets_of
from ottla.storage.retention import count_beyond_size, is_expired
from ottla.storage.segment import LOG_SUFFIX, Segment, file_stem

K = TypeVar("K")
T = TypeVar("T")


class ClosedSegments(LogEnd):
    """What ``PartitionLog`` is to those who care for its past."""

    __slots__ = ()

    @property
    def log_start_offset(self) -> int:
        return self._start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last one written."""
        return self._end_offset

    @property
    def lacks_offsets(self) -> bool:
        """Whether compaction may have left segments that end before the next one begins."""
        return self.config.is_compacted or self.first_dirty_offset > self._start_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    async def _undisturbed(self, look: Callable[[], Awaitable[T]]) -> T:
        """What ``look`` finds; it looks again when segments that it had before it were deleted or replaced meanwhile.

        FileNotFoundError when the file of a segment is missing that still belongs to the log.
        """
        generation = -1
        while True:
            before, generation = generation, self._places.generation
            try:
                return await look()
            except FileNotFoundError:
                if self._places.generation == before or self.is_failed:
                    raise

    def advance_log_start_offset(self, offset: int) -> None:
        """Records below ``offset`` are no longer served. The owner checkpoints the offset before it lets segments be deleted."""
        assert offset <= self._end_offset, "a log does not begin behind its end"
        if offset > self._start_offset:
            self._start_offset = offset
            self.first_dirty_offset = max(self.first_dirty_offset, offset)
            if self.epochs.truncate_from_start(offset):
                self._epochs_changed = True

    async def retained_from(self, now_ms: int) -> int:
        """The offset below which retention keeps nothing; the log's start when all is kept.

        When everything is too old, that includes the last segment: it will be closed by the next flush (``close_segment_soon``),
        and goes after that. Only closed segments are deleted.
        """
        return await self._undisturbed(lambda: self._retained_from(now_ms))

    async def _retained_from(self, now_ms: int) -> int:
        config, segments = self.config, list(self.segments)
        count = sum(following.base_offset <= self._start_offset for following in segments[1:])
        if config.is_deleted:
            *closed, last = [segment.size for segment in segments]
            count = max(count, count_beyond_size(closed, last, retention_bytes=config.retention_bytes))
            while count < len(segments) and await self._is_expired(segments[count], now_ms):
                count += 1
        if count == len(segments):
            count -= 1
            self.close_segment_soon()
        return max(self._start_offset, segments[count].base_offset)

    async def _is_expired(self, segment: Segment, now_ms: int) -> bool:
        if segment.size == 0:  # compaction left nothing of it, or it is the last one and has nothing yet
            return segment is not self.segments[-1]
        return is_expired(await self._newest_ms(segment), now_ms=now_ms, retention_ms=self.config.retention_ms)

    async def _newest_ms(self, segment: Segment) -> int:
        """The newest time in the segment; when it was appended to, where its records have no times."""
        if segment.max_timestamp < 0 and not segment.is_loaded:
            await segment.load()
            self._places.keep_loaded(segment)
        return segment.max_timestamp if segment.max_timestamp >= 0 else segment.appended_ms

    async def delete_segments_below(self, offset: int, *, now_ms: int = 0, one_by_one: bool = False) -> int:
        """Closed segments all of whose records lie below ``offset`` are out of the log; how many there were.

        Their files stay as ``.deleted`` ones for ``file.delete.delay.ms`` (``remove_deleted``). ``one_by_one`` is for when no
        checkpoint says where the log starts: each is durably removed before the next, so that no power cut leaves a hole.
        """
        count = 0
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            segment = self.segments.pop(0)
            if segment in self._unsynced:
                self._unsynced.remove(segment)
            self._places.forget()
            self.advance_log_start_offset(self.segments[0].base_offset)
            if one_by_one:
                await segment.remove()
                await self._disk.sync_dir(self._folder)
            else:
                await self._retire(segment, now_ms)
            count += 1
        if count:
            self._folder_changed = True
            for snapshot in await offsets_of(self._disk, self._folder, SNAPSHOT_SUFFIX):
                if snapshot < self.segments[0].base_offset:
                    await self._disk.remove(self._snapshot_path(snapshot))
        return count

    async def _retire(self, segment: Segment, now_ms: int) -> None:
        if self.config.file_delete_delay_ms <= 0:
            await segment.remove()
            return
        paths = await segment.retire()
        self._deleted.append((now_ms + self.config.file_delete_delay_ms, paths))

    @property
    def has_deleted(self) -> bool:
        """Whether ``.deleted`` files wait for their time."""
        return bool(self._deleted)

    async def remove_deleted(self, now_ms: int) -> None:
        """Files deleted longer than ``file.delete.delay.ms`` ago are gone."""
        while self._deleted and self._deleted[0][0] <= now_ms:
            for path in self._deleted.pop(0)[1]:
                try:
                    await self._disk.remove(path)
                except FileNotFoundError:  # it went with its directory
                    continue

    # -- compaction

    async def dirtiness(self, key: K, now_ms: int) -> Dirtiness[K]:
        """How much there is to clean (``dirtiness.py``)."""
        return await self._undisturbed(lambda: self._dirtiness(key, now_ms))

    async def _dirtiness(self, key: K, now_ms: int) -> Dirtiness[K]:
        end_offset = await self._cleanable_to(now_ms)
        clean_bytes = dirty_bytes = 0
        overdue_ms = 0
        for segment, following in pairwise(list(self.segments)):
            if following.base_offset <= self.first_dirty_offset:
                clean_bytes += segment.size
            elif segment.base_offset < end_offset:
                if not dirty_bytes and self.config.max_compaction_lag_ms < LONG_MAX:
                    overdue_ms = now_ms - await segment.oldest_timestamp() - self.config.max_compaction_lag_ms
                dirty_bytes += segment.size
        return Dirtiness(key, clean_bytes, dirty_bytes, self.config.min_cleanable_dirty_ratio, overdue_ms)

    async def clean_request(self, now_ms: int, *, map_bytes: int, map_load_factor: float) -> CleanRequest | None:
        """What a cleaning now has to do; None when nothing can be cleaned."""
        end_offset = await self._undisturbed(lambda: self._cleanable_to(now_ms))
        all_sources = [
            Source(segment.base_offset, following.base_offset, segment.size) for segment, following in pairwise(self.segments)
        ] + [Source(self.segments[-1].base_offset, self._end_offset, self.segments[-1].size)]
        count = sum(segment.base_offset < end_offset for segment in self.segments)
        if end_offset <= self.first_dirty_offset:
            return None
        producers = [
            Producer(producer_id, state.epoch, state.batches[-1][3] if state.batches else -1)
            for producer_id, state in self._producers.states.items()
        ]
        config = self.config
        return CleanRequest(
            folder=self._folder, sources=all_sources[:count], later=all_sources[count:],
            first_dirty_offset=self.first_dirty_offset, end_offset=end_offset, producers=producers,
            now_ms=now_ms, delete_retention_ms=config.delete_retention_ms, segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes, index_interval_bytes=config.index_interval_bytes, map_bytes=map_bytes,
            map_load_factor=map_load_factor,
        )  # fmt: skip

    async def _cleanable_to(self, now_ms: int) -> int:
        """Closed, synced, without an open transaction, and older than ``min.compaction.lag.ms``."""
        transactions = [state.transaction_first_offset for state in self._producers.states.values()]
        unsynced = self._unsynced or self.segments[-1:]
        end_offset = min([unsynced[0].base_offset, *(offset for offset in transactions if offset >= 0)])
        safe_since_ms = now_ms - self.config.min_compaction_lag_ms
        if self.config.min_compaction_lag_ms > 0:
            for segment, following in pairwise(list(self.segments)):
                if following.base_offset > self.first_dirty_offset and await self._newest_ms(segment) > safe_since_ms:
                    return min(end_offset, segment.base_offset)
        return end_offset

    async def install(self, cleaned: Cleaned, *, now_ms: int) -> bool:
        """The cleaned segment is in the place of those that it came from; False, and its files are gone, when they changed meanwhile.

        The owner has checkpointed the recovery point before: only below it may a log lack offsets.
        """
        if cleaned.folder != self._folder:  # the log has moved, and its old directory goes with them
            return False
        bases = [source.base_offset for source in cleaned.sources]
        replaced = [segment for segment in self.segments[:-1] if segment.base_offset in bases]
        if [(segment.base_offset, segment.size) for segment in replaced] != [
            (source.base_offset, source.size) for source in cleaned.sources
        ]:
            await self.drop_cleaned(cleaned)
            return False
        fresh = await self._arriving(cleaned, replaced)
        try:
            await swap.commit(self._disk, self._folder, cleaned.base_offset, cleaned.end_offset)
            first = self.segments.index(replaced[0])
            self.segments[first : first + len(replaced)] = [fresh]  # whoever reads from now on needs none of the old files
            self._was_closed = False
            self._places.forget()
            replaced[0].is_retired = True
            for segment in replaced[1:]:
                await self._retire(segment, now_ms)
            await swap.finish(self._disk, self._folder, cleaned.base_offset, cleaned.end_offset)
        except OSError as error:
            self.on_disk_error(error)
            self.fail()  # which files have which names is for the next start to find out
            raise
        fresh.has_arrived()
        return True

    async def _arriving(self, cleaned: Cleaned, replaced: Sequence[Segment]) -> Segment:
        """The cleaned segment with all of it that is looked into in memory or open: its files have other names for a while yet."""
        path = f"{self._folder}/{file_stem(cleaned.base_offset)}"
        file = await self._disk.open(f"{path}{LOG_SUFFIX}{CLEANED_SUFFIX}")
        fresh = Segment(self._disk, self._folder, cleaned.base_offset, file, index_interval_bytes=self.config.index_interval_bytes)
        fresh.size, fresh.max_timestamp, fresh.appended_ms = cleaned.size, cleaned.max_timestamp, replaced[-1].appended_ms
        await fresh.arrive(CLEANED_SUFFIX)
        return fresh

    async def drop_cleaned(self, cleaned: Cleaned) -> None:
        """The cleaned segment's files are removed."""
        await swap.drop(self._disk, cleaned.folder, cleaned.base_offset)

    async def drop_all_cleaned(self, found: Sequence[Cleaned]) -> None:
        """As ``drop_cleaned``, for a log that takes none of them; what cannot be removed, the next start removes."""
        for cleaned in found:
            try:
                await self.drop_cleaned(cleaned)
            except OSError:
                continue
