"""One segment: a log file of bounded size, an offset index and a time index, all named by their base offset.

The log file is the truth; both indexes can be rebuilt from it and are, when they are missing or wrong. While a segment is
the last one its indexes live in memory and need not be on disk. Once closed they are files, loaded again when a reader
looks something up. A looked-up entry is checked against the batch that it names, so a wrong one cannot mislead. One that is
missing only makes the walk longer, but for the newest time of a closed segment: that it is there is believed.

The log file of a closed segment is open while it is being read, or not yet synced; a log of many segments needs few
descriptors. What was handed out of it (``ports.FileRegion``) keeps it open by itself.

``size`` counts the bytes that belong to the log: ``0 <= size <= file.size``. A reader never goes beyond it.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import zlib
from collections.abc import Sequence
from typing import Final

from ottla.errors import DecodeError
from ottla.ports import Disk, File
from ottla.records.batch import BatchHeader
from ottla.storage.config import LogConfig
from ottla.storage.segment.files import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
    overwrite,
    rename_files,
)
from ottla.storage.segment.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from ottla.storage.segment.tally import Counted, CountRequest, Tally, count
from ottla.storage.segment.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from ottla.storage.segment.time_index import TimeIndex
from ottla.storage.segment.walk import BatchWalk

POSITION_MAX: Final = 2**31 - 1  # positions in an index have 32 bits, and Kafka reads them signed


class Segment(Tally):
    """A log file and its indexes."""

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_path",
        "appended_ms",
        "cut_count",
        "has_aborted",
        "holds_file",
        "is_arriving",
        "is_retired",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, file: File, *, index_interval_bytes: int) -> None:
        super().__init__(base_offset, index_interval_bytes)
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{file_stem(base_offset)}"
        self._file: File | None = file
        self.holds_file = False  # it is closed and was not synced yet: an error of its disk must reach the sync
        self.is_arriving = False  # its files have other names yet: what it has open and in memory stays so
        self.has_aborted = False  # it has a file of its aborted transactions
        self.appended_ms = 0  # when the last batch came: for records without times
        self.is_retired = False  # its files are deleted or replaced: only reads in progress still use it
        self.cut_count = 0  # how often it was cut: what was read of it before is not what it has, whatever its size

    @classmethod
    async def open(cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, create: bool = False) -> Segment:
        """Opens the segment, with nothing of it counted yet; a created one is empty."""
        file = await disk.open(f"{directory}/{file_stem(base_offset)}{LOG_SUFFIX}", create=create)
        assert not create or file.size == 0, "recovery treats every log file of the directory as a segment"
        return cls(disk, directory, base_offset, file, index_interval_bytes=index_interval_bytes)

    @property
    def file(self) -> File:
        """The open log file: of the last segment always."""
        assert self._file is not None, "a closed segment is opened first"
        return self._file

    @file.setter
    def file(self, file: File) -> None:
        self._file = file

    @property
    def path(self) -> str:
        """Of the log file."""
        return self._path + LOG_SUFFIX

    @property
    def transaction_index_path(self) -> str:
        return self._path + TRANSACTION_INDEX_SUFFIX

    async def opened(self) -> File:
        """Returns the log file, opened if it was not. FileNotFoundError when the segment was retired: the log has another by now."""
        if self._file is None:
            if self.is_retired:
                raise FileNotFoundError(errno.ENOENT, "the segment was deleted or replaced", self.path)
            file = await self._disk.open(self.path)
            if self.is_retired:  # it may be the file of the segment that replaced this one
                raise FileNotFoundError(errno.ENOENT, "the segment was deleted or replaced", self.path)
            self._file = file
        return self._file

    def takes_all(self, size: int, batches: int, last_offset: int, max_timestamp: int, config: LogConfig) -> bool:
        """True when so many batches of ``size`` bytes fit, with the index entries that they may need, and none is too late.

        An empty segment has no first timestamp yet: whether several batches are too far apart is for the caller to see.
        """
        assert self._indexes is not None, "a growing segment has its indexes in memory"
        entries = len(self._indexes[0]) + batches
        return (
            self.size + size <= config.segment_bytes
            and (max_timestamp - self.first_timestamp <= self.roll_ms(config) or self.first_timestamp < 0)
            and entries * TIME_ENTRY_SIZE <= config.segment_index_bytes  # the larger of the two
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and self.size + size <= POSITION_MAX
        )

    def roll_ms(self, config: LogConfig) -> int:
        """Returns how far apart its times may be: less by up to segment.jitter.ms, so that logs started together do not roll together."""
        if not config.segment_jitter_ms:
            return config.roll_ms
        return config.roll_ms - zlib.crc32(self._path.encode()) % min(config.segment_jitter_ms, config.roll_ms)

    def relocated(self, directory: str, file: File) -> Segment:
        """Returns the same segment with its log file in another directory; this one is retired."""
        other = copy.copy(self)
        other._directory, other._path, other.file = directory, f"{directory}/{file_stem(self.base_offset)}", file
        self.is_retired = True
        return other

    def has_changed_since(self, cut_count: int) -> bool:
        """True when what was read of it, when it had been cut so often, may be wrong: it was deleted, replaced or cut since."""
        return self.is_retired or self.cut_count != cut_count

    # -- indexes as files

    async def write_indexes(self) -> None:
        """Writes both indexes to files, the newest time included; not yet synced. None of a segment that is retired meanwhile."""
        offset_index, time_index = self.index_files()
        for suffix, data in ((INDEX_SUFFIX, offset_index), (TIME_INDEX_SUFFIX, time_index)):
            if self.is_retired:  # the file may be another segment's by now, whose newest time would be believed
                break
            await overwrite(self._disk, self._path + suffix, data)
        if self.is_retired:  # whichever segment has the names now rebuilds what is missing
            await self._remove((INDEX_SUFFIX, TIME_INDEX_SUFFIX))

    async def write_transaction_index(self, aborted: bytes) -> None:
        """Writes the aborted transactions whose markers it has to its file, not yet synced; without any there is no file."""
        if aborted:
            self.has_aborted = True
            await overwrite(self._disk, self.transaction_index_path, aborted)
        elif self.has_aborted:
            await self._remove((TRANSACTION_INDEX_SUFFIX,))
            self.has_aborted = False

    async def sync_transaction_index(self) -> None:
        if self.has_aborted:
            file = await self._disk.open(self.transaction_index_path)
            await file.sync()
            await file.close()

    async def read_transaction_index(self) -> bytes:
        """Reads the file of its aborted transactions; nothing where there is none."""
        return await self._disk.read_file(self.transaction_index_path) if self.has_aborted else b""

    async def sync(self, *, with_indexes: bool) -> None:
        await (await self.opened()).sync()
        if with_indexes:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                file = await self._disk.open(self._path + suffix)
                await file.sync()
                await file.close()
            await self.sync_transaction_index()

    def unload(self) -> None:
        """Frees a closed segment's memory: the indexes stay in their files, and the log file is closed, unless it is not synced yet."""
        if self.is_arriving:
            return
        self._indexes = None
        if not self.holds_file:
            self._file = None

    def synced(self) -> None:
        """Notes that the closed segment is durable, and lets its file go."""
        self.holds_file = False
        if self._indexes is None:
            self._file = None

    @property
    def is_loaded(self) -> bool:
        return self._indexes is not None

    async def load(self) -> tuple[OffsetIndex, TimeIndex]:
        """Returns both indexes, from their files, or rebuilt when those are missing or wrong."""
        if self._indexes is not None:
            return self._indexes
        if self.is_retired:  # its index files may be another segment's by now
            return await self.rebuild()
        try:
            indexes = self._indexes = await self._read_indexes()
        except (DecodeError, FileNotFoundError):
            indexes = await self.rebuild()
        return indexes

    async def arrive(self, suffix: str) -> None:
        """Loads the indexes from files whose names end so; it needs none of its names until it ``has_arrived``."""
        self.is_arriving = True
        self._indexes = await self._read_indexes(suffix)

    def has_arrived(self) -> None:
        """Notes that its files have its names."""
        self.is_arriving = False
        self.unload()

    async def _read_indexes(self, suffix: str = "") -> tuple[OffsetIndex, TimeIndex]:
        """Reads both indexes. DecodeError when they do not fit the log; the newest entries and the maximum are checked against batches."""
        data = await self._disk.read_file(self._path + INDEX_SUFFIX + suffix)
        offset_index = OffsetIndex.from_bytes(data, self.base_offset, log_size=self.size)
        time_index = TimeIndex.from_bytes(await self._disk.read_file(self._path + TIME_INDEX_SUFFIX + suffix), self.base_offset)
        if time_index.last is not None:
            timestamp, offset = time_index.last
            found = await self._walk_to(offset, offset_index)
            if found is None or found[1].last_offset != offset or found[1].max_timestamp != timestamp:
                raise DecodeError(f"the time index says that time {timestamp} is at offset {offset}")
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset
        return offset_index, time_index

    async def load_tail(self) -> int:
        """Counts everything as the files have it, and returns the end offset: for the last segment after a clean stop.

        DecodeError or FileNotFoundError when the files do not fit together.
        """
        self.size = self.file.size
        offset_index, time_index = await self._read_indexes()
        await self.oldest_timestamp()
        start = offset_index.last[1] if offset_index.last else 0
        end_offset = self.base_offset
        walk = BatchWalk(self.file, start, self.size)
        while (header := await walk.next()) is not None:
            if header.max_timestamp > self.max_timestamp or header.base_offset < end_offset:
                raise DecodeError(f"the batch at byte {walk.position} does not fit the indexes or the batch before it")
            end_offset = header.last_offset + 1
        self._indexes = offset_index, time_index
        self._bytes_since_entry = self.size - start
        return end_offset

    async def count(self, size: int, *, is_recovery: bool) -> Counted:
        """Counts what the first ``size`` bytes of the log file hold (``tally.py``); nothing changes by it."""
        request = CountRequest(self.path, self.base_offset, size, self._index_interval_bytes, is_recovery)
        return await count(self._disk, await self.opened(), request, may_be_a_job=not self.is_retired and not self.is_arriving)

    async def rebuild(self) -> tuple[OffsetIndex, TimeIndex]:
        """Rebuilds the indexes from the log file, in memory and as files. DecodeError when the log itself is damaged."""
        size, was_retired = self.size, self.is_retired
        counted = await self.count(size, is_recovery=False)
        if self.is_retired and not was_retired:
            return await self.rebuild()  # a worker may have opened its successor by the name
        if self.size != size and self._indexes is not None:
            return self._indexes  # it has grown meanwhile: the last segment, whose indexes are in memory and right
        self.take_over(counted)
        indexes = self._indexes
        assert indexes is not None, "taken over"
        if not self.is_retired and not self.is_arriving:
            await self.write_indexes()
        return indexes

    async def oldest_timestamp(self) -> int:
        """Returns about the time of the segment's first record: the largest of its first batch; -1 without one."""
        if self.first_timestamp < 0:
            first = await BatchWalk(await self.opened(), 0, self.size).next()
            self.first_timestamp = first.max_timestamp if first is not None else -1
        return self.first_timestamp

    # -- lookups

    async def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Returns position and header of the first batch that ends at or after ``offset``; None when the segment ends before it."""
        offset_index, _ = await self.load()
        try:
            return await self._walk_to(offset, offset_index)
        except DecodeError:
            offset_index, _ = await self.rebuild()
            return await self._walk_to(offset, offset_index)

    async def _walk_to(self, offset: int, offset_index: OffsetIndex) -> tuple[int, BatchHeader] | None:
        entry = offset_index.lookup(offset)
        start = entry[1] if entry else 0
        walk = BatchWalk(await self.opened(), start, self.size)
        while (header := await walk.next()) is not None:
            if entry is not None and walk.position == start and header.last_offset != entry[0]:
                raise DecodeError(f"the offset index says that the batch at byte {start} ends with offset {entry[0]}")
            if header.last_offset >= offset:
                return walk.position, header
        return None

    def bound_of(self, position: int, otherwise: int) -> int:
        """Returns an offset after all batches that start before ``position``, by the offset index; ``otherwise`` if it does not know."""
        offset = None if self._indexes is None else self._indexes[0].bound_of(position)
        return otherwise if offset is None else min(offset, otherwise)

    async def find_time(self, timestamp: int) -> tuple[int, BatchHeader] | None:
        """Returns position and header of the first batch with a record at or after ``timestamp``."""
        _, time_index = await self.load()
        start = 0
        entry = time_index.lookup(timestamp)
        if entry is not None:
            found = await self.find(entry[1])
            if found is None or found[1].last_offset != entry[1] or found[1].max_timestamp != entry[0]:
                await self.rebuild()
            else:
                start = found[0]
        walk = BatchWalk(await self.opened(), start, self.size)
        while (header := await walk.next()) is not None:
            if header.max_timestamp >= timestamp:
                return walk.position, header
        return None

    # -- the end of it

    async def truncate(self, size: int, end_offset: int, *, is_durable: bool) -> None:
        """Cuts the log at ``size``, a batch's start, and ``end_offset``, durably unless the caller sees to that. It may grow again.

        The indexes lose what was after that: nothing is walked but the batches after their last entries.
        """
        self.cut_count += 1
        offset_index, time_index = await self.load()
        file = await self.opened()
        if size < file.size:
            await file.truncate(size)
            if is_durable:
                await file.sync()
        self.size = size
        offset_index.truncate(size)
        time_index.truncate(end_offset)
        start = offset_index.last[1] if offset_index.last else 0
        self.max_timestamp, self.max_timestamp_offset = time_index.last or (-1, -1)
        walk = BatchWalk(file, start, size)
        while (header := await walk.next()) is not None:
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        self._bytes_since_entry = size - start
        self.first_timestamp = await self.oldest_timestamp() if size else -1

    async def retire(self) -> list[str]:
        """Gives the files ``.deleted`` names, which are returned. Reads of the segment that are in progress are not disturbed."""
        self.is_retired = True
        return await rename_files(self._disk, self._path, self._suffixes, DELETED_SUFFIX)

    async def remove(self) -> None:
        """Deletes the files from the directory. Regions of the log that are still being sent keep it open (``ports.FileRegion``)."""
        self.is_retired = True
        await self._remove(self._suffixes)

    async def remove_log(self) -> None:
        """Deletes all files but that of its aborted transactions."""
        self.is_retired = True
        await self._remove((INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX))

    def let_go(self) -> None:
        """Closes a retired segment's file, once no region of it is being sent. No read opens it again."""
        assert self.is_retired, "a segment of the log keeps its file"
        self._file = None

    @property
    def _suffixes(self) -> Sequence[str]:
        return SUFFIXES if self.has_aborted else (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)

    async def _remove(self, suffixes: Sequence[str]) -> None:
        """Deletes these files of it, even if another part removes them at the same time."""
        for suffix in suffixes:
            with contextlib.suppress(FileNotFoundError):
                await self._disk.remove(self._path + suffix)


async def remove_segments(disk: Disk, directory: str, segments: list[Segment], first: int, *, is_durable: bool = True) -> None:
    """Deletes the segments from ``first`` on, last one first: none remains after a gap, with ``is_durable`` even after a power cut."""
    while len(segments) > first:
        await segments.pop().remove()
        if is_durable:
            await disk.sync_dir(directory)
