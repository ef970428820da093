"""Compaction as a log sees it: what there is to clean, and putting a cleaned segment in the place of those it came from.

The cleaning itself is a job over closed files (``compaction/job.py``). Meanwhile the log keeps growing: what the job returns is
installed only if its sources are still there as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, TypeVar

from ottla.ports import Disk
from ottla.storage.compaction import swap
from ottla.storage.compaction.batch_cleaner import Producer
from ottla.storage.compaction.dirtiness import Dirtiness
from ottla.storage.compaction.job import CLEANED_SUFFIX, Cleaned, CleanRequest, Source
from ottla.storage.config import LONG_MAX, LogConfig
from ottla.storage.health import LogHealth
from ottla.storage.log.segments import LogSegments
from ottla.storage.log.tail import Tail
from ottla.storage.segment.files import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_stem
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.transaction_blocks import with_markers_at

K = TypeVar("K")


class Compaction:
    """The compaction of one log, which has been compacted below ``first_dirty_offset``; the owner checkpoints that offset."""

    __slots__ = ("_disk", "_health", "_segments", "_tail", "first_dirty_offset")

    def __init__(self, disk: Disk, segments: LogSegments, tail: Tail, health: LogHealth) -> None:
        self._disk: Final = disk
        self._segments: Final = segments
        self._tail: Final = tail
        self._health: Final = health
        self.first_dirty_offset = segments.all[0].base_offset

    @property
    def _config(self) -> LogConfig:
        return self._tail.config

    async def dirtiness(self, key: K, now_ms: int) -> Dirtiness[K]:
        """Returns how much there is to clean (``dirtiness.py``)."""
        return await self._segments.undisturbed(lambda: self._dirtiness(key, now_ms))

    async def _dirtiness(self, key: K, now_ms: int) -> Dirtiness[K]:
        config = self._config
        end_offset = await self._cleanable_to(now_ms)
        clean_bytes = dirty_bytes = 0
        overdue_ms = 0
        for segment, following in pairwise(list(self._segments.all)):
            if following.base_offset <= self.first_dirty_offset:
                clean_bytes += segment.size
            elif segment.base_offset < end_offset:
                if not dirty_bytes and config.max_compaction_lag_ms < LONG_MAX:
                    overdue_ms = now_ms - await segment.oldest_timestamp() - config.max_compaction_lag_ms
                dirty_bytes += segment.size
        return Dirtiness(key, clean_bytes, dirty_bytes, config.min_cleanable_dirty_ratio, overdue_ms)

    async def clean_request(self, now_ms: int, *, map_bytes: int, map_load_factor: float) -> CleanRequest | None:
        """Returns what a cleaning has to do now; None when nothing can be cleaned."""
        end_offset = await self._segments.undisturbed(lambda: self._cleanable_to(now_ms))
        segments = self._segments.all
        all_sources = [Source(segment.base_offset, following.base_offset, segment.size) for segment, following in pairwise(segments)]
        all_sources.append(Source(segments[-1].base_offset, self._tail.end_offset, segments[-1].size))
        count = sum(segment.base_offset < end_offset for segment in segments)
        if end_offset <= self.first_dirty_offset:
            return None
        producers = [
            Producer(producer_id, state.epoch, state.batches[-1][3] if state.batches else -1)
            for producer_id, state in self._tail.producers.states.items()
        ]
        config = self._config
        return CleanRequest(
            directory=self._segments.directory, sources=all_sources[:count], later=all_sources[count:],
            first_dirty_offset=self.first_dirty_offset, end_offset=end_offset, producers=producers,
            now_ms=now_ms, delete_retention_ms=config.delete_retention_ms, segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes, index_interval_bytes=config.index_interval_bytes, map_bytes=map_bytes,
            map_load_factor=map_load_factor,
        )  # fmt: skip

    async def _cleanable_to(self, now_ms: int) -> int:
        """Returns the end of what is closed, synced, older than ``min.compaction.lag.ms``, and below the last stable offset.

        An end marker that is not committed yet may be cut off the log again: what it decides is not decided.
        """
        segments, config = self._segments, self._config
        unsynced = segments.unsynced or segments.all[-1:]
        committed_end = self._tail.committed_end
        high_watermark = self._tail.end_offset if committed_end is None else committed_end()
        end_offset = min(unsynced[0].base_offset, self._tail.producers.last_stable_offset(high_watermark))
        safe_since_ms = now_ms - config.min_compaction_lag_ms
        if config.min_compaction_lag_ms > 0:
            for segment, following in pairwise(list(segments.all)):
                if following.base_offset > self.first_dirty_offset and await segments.newest_ms(segment) > safe_since_ms:
                    return min(end_offset, segment.base_offset)
        return end_offset

    async def install_all(self, found: Sequence[Cleaned], *, now_ms: int) -> bool:
        """Installs the cleaned segments, oldest first, up to the first that fails, and drops the rest. Returns whether all are installed.

        A later one may lack the tombstone, or the abort marker, of what stays in an earlier one: a deleted key, or an aborted record,
        would be back.
        """
        for number, cleaned in enumerate(found):
            if not await self.install(cleaned, now_ms=now_ms):
                await self.drop_all_cleaned(found[number + 1 :])
                return False
        return True

    async def install(self, cleaned: Cleaned, *, now_ms: int) -> bool:
        """Replaces the segments that the cleaned one came from; False, with its files removed, when they changed meanwhile.

        OSError, and the log is as it was, when a disk refuses the preparation; when it refuses the replacement the log has failed, and
        is to be opened again where what it lacked may come.

        The owner has checkpointed the recovery point before: only below it may a log lack offsets.
        """
        segments, directory = self._segments, self._segments.directory
        if cleaned.directory != directory:  # the log has moved, and its old directory is removed with them
            return False
        bases = [source.base_offset for source in cleaned.sources]
        replaced = [segment for segment in segments.all[:-1] if segment.base_offset in bases]
        if [(segment.base_offset, segment.size) for segment in replaced] != [
            (source.base_offset, source.size) for source in cleaned.sources
        ]:
            await self.drop_cleaned(cleaned)
            return False
        kept = set(cleaned.aborts)
        aborted = b"".join([with_markers_at(await segment.read_transaction_index(), kept) for segment in replaced])
        fresh = await self._arriving(cleaned, replaced, aborted)
        try:
            # In one from before a marker that this cleaning drops the transaction is open: it would be again, were no newer one left.
            await segments.forget_snapshots_below(cleaned.end_offset)
            await swap.prepare(self._disk, directory, cleaned.base_offset, has_aborted=fresh.has_aborted)
        except OSError:
            await fresh.file.close()
            raise
        try:
            await swap.commit(self._disk, directory, cleaned.base_offset, cleaned.end_offset)
            segments.replace(replaced, fresh)
            segments.aborted.replace(cleaned.base_offset, cleaned.end_offset, aborted)
            replaced[0].is_retired = True
            for segment in replaced[1:]:
                await segments.retire(segment, now_ms)
            await swap.finish(self._disk, directory, cleaned.base_offset, cleaned.end_offset)
        except OSError as error:
            self._health.broken_off(error)  # which files have which names is for the next opening to find out
            raise
        fresh.has_arrived()
        segments.aborted.has_arrived()
        return True

    async def _arriving(self, cleaned: Cleaned, replaced: Sequence[Segment], aborted: bytes) -> Segment:
        """Returns the cleaned segment with its indexes in memory and its file open: its files have other names for a while yet."""
        path = f"{self._segments.directory}/{file_stem(cleaned.base_offset)}"
        file = await self._disk.open(f"{path}{LOG_SUFFIX}{CLEANED_SUFFIX}")
        interval = self._config.index_interval_bytes
        fresh = Segment(self._disk, self._segments.directory, cleaned.base_offset, file, index_interval_bytes=interval)
        fresh.size, fresh.max_timestamp, fresh.appended_ms = cleaned.size, cleaned.max_timestamp, replaced[-1].appended_ms
        await fresh.arrive(CLEANED_SUFFIX)
        fresh.has_aborted = any(segment.has_aborted for segment in replaced)
        if fresh.has_aborted:  # though it be empty: it takes the place of the other one
            index = await self._disk.open(f"{path}{TRANSACTION_INDEX_SUFFIX}{CLEANED_SUFFIX}", create=True)
            await index.truncate(0)
            await index.append([aborted])
            await index.sync()
            await index.close()
        return fresh

    async def drop_cleaned(self, cleaned: Cleaned) -> None:
        """Removes the cleaned segment's files."""
        await swap.drop(self._disk, cleaned.directory, cleaned.base_offset)

    async def drop_all_cleaned(self, found: Sequence[Cleaned]) -> None:
        """Drops all these, for a log that takes none of them; what cannot be removed, the next start removes."""
        for cleaned in found:
            with suppress(OSError):
                await self.drop_cleaned(cleaned)

    async def drop_unfinished(self, request: CleanRequest) -> None:
        """Drops whatever a cleaning that was not finished has written."""
        for source in request.sources:
            with suppress(OSError):
                await swap.drop(self._disk, request.directory, source.base_offset)
