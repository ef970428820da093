"""Compaction of a log's closed segments: a job (class c) that writes what stays beside what is there.

Three walks. Over all headers: where transactions ended. Over the dirty part, which no cleaning has seen yet: the newest offset
of each key, until the map is full. Over everything up to there: what stays of each batch (``batch_cleaner.py``), written to
``.cleaned`` files. Neighbours become one segment as long as what stays of them fits, whatever their size was before.

The job does not change the log. Its caller installs the files (``swap.py``) and then knows that everything below
``end_offset`` is clean. Source: Kafka's documentation of log compaction.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.ports import Buffer, Disk, File, Job, Pace
from ottla.records.batch import read_header
from ottla.records.control import end_marker_of
from ottla.records.iteration import iterate_records
from ottla.storage.compaction.batch_cleaner import BatchCleaner, Producer
from ottla.storage.compaction.offset_map import OffsetMap
from ottla.storage.compaction.transaction_ends import TransactionEnds
from ottla.storage.segment.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_stem
from ottla.storage.segment.offset_index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import POSITION_MAX
from ottla.storage.segment.tally import Tally
from ottla.storage.segment.time_index import ENTRY_SIZE
from ottla.storage.segment.walk import BatchWalk

CLEANED_SUFFIX: Final = ".cleaned"
_WRITE_BYTES: Final = 1 << 19
_ROOM_TO_GROW: Final = 1 << 24  # below the largest position: a batch with a delete horizon is longer by some bytes a record


class Source(msgspec.Struct, frozen=True):
    """A closed segment."""

    base_offset: int
    end_offset: int  # where the next one starts
    size: int


class CleanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``sources`` are the log's first segments, in order; nothing at or after ``end_offset`` is changed.

    ``later`` are the segments after them, which may show how a transaction ended that started in one of the sources.
    """

    directory: str
    sources: list[Source]
    later: list[Source]
    first_dirty_offset: int
    end_offset: int
    producers: list[Producer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    map_load_factor: float


class Cleaned(msgspec.Struct, frozen=True):
    """The result of cleaning some segments: the files with ``.cleaned`` names, durable. ``max_timestamp`` is -1 without times.

    ``aborts`` are the offsets of the abort markers that stay: of the other transactions nothing is left, so they need no marker.
    """

    directory: str
    sources: list[Source]
    size: int
    max_timestamp: int
    aborts: list[int]

    @property
    def base_offset(self) -> int:
        return self.sources[0].base_offset

    @property
    def end_offset(self) -> int:
        """Where the segment after those that it replaces starts."""
        return self.sources[-1].end_offset


class CleanResult(msgspec.Struct, frozen=True):
    """Segments of which everything stays are not in ``cleaned``. All below ``end_offset`` is clean once those are installed."""

    cleaned: list[Cleaned]
    end_offset: int
    key_count: int
    removed_records: int


async def _clean(disk: Disk, request: CleanRequest, pace: Pace) -> CleanResult:
    ends = await _transaction_ends(disk, request)
    offsets = OffsetMap(request.map_bytes, request.map_load_factor)
    end_offset = await _fill(disk, request, offsets, ends, pace)
    horizon_ms = request.now_ms + request.delete_retention_ms
    cleaner = BatchCleaner(offsets, ends, request.producers, end_offset=end_offset, now_ms=request.now_ms, horizon_ms=horizon_ms)
    sources = [source for source in request.sources if source.base_offset < end_offset]
    cleaned: list[Cleaned] = []
    while sources:
        group = _Group(request, sources[0])
        await group.begin(disk)
        while sources and group.takes(sources[0]):
            await group.add(disk, sources.pop(0), cleaner, pace, is_last=not sources)
        result = await group.end(disk)
        if result is not None:
            cleaned.append(result)
    await disk.sync_dir(request.directory)
    return CleanResult(cleaned, end_offset, offsets.count, cleaner.removed_records)


def _stem(request: CleanRequest, source: Source) -> str:
    return f"{request.directory}/{file_stem(source.base_offset)}"


async def _open(disk: Disk, request: CleanRequest, source: Source) -> File:
    return await disk.open(_stem(request, source) + LOG_SUFFIX)


async def _transaction_ends(disk: Disk, request: CleanRequest) -> TransactionEnds:
    ends, unended = TransactionEnds(), set[int]()
    for index, source in enumerate([*request.sources, *request.later]):
        if index >= len(request.sources) and not unended:
            break
        file = await _open(disk, request, source)
        walk = BatchWalk(file, 0, source.size)
        while (header := await walk.next()) is not None:
            if not header.is_control:
                if header.is_transactional and index < len(request.sources):
                    unended.add(header.producer_id)
            elif header.count:
                marker = end_marker_of(iterate_records(await file.pread(walk.position, header.size_bytes))[0])
                if marker is not None:
                    ends.add(header, is_commit=marker.is_commit)
                    unended.discard(header.producer_id)
    return ends


async def _fill(disk: Disk, request: CleanRequest, offsets: OffsetMap, ends: TransactionEnds, pace: Pace) -> int:
    """Fills the map with the newest offset of each key. Returns the offset up to which it is filled."""
    ends = ends.copy()  # asking forgets, and there is another walk to come
    for source in request.sources:
        if source.end_offset <= request.first_dirty_offset:
            continue
        walk = BatchWalk(await _open(disk, request, source), 0, source.size, check_crc=True)
        while (header := await walk.next()) is not None:
            await pace(header.size_bytes)
            if header.last_offset < request.first_dirty_offset or header.is_control or ends.is_aborted(header):
                continue
            for record in iterate_records(walk.batch):
                if record.offset >= request.end_offset:
                    return request.end_offset
                if record.key is None or record.offset < request.first_dirty_offset:
                    continue
                if offsets.is_full:
                    return record.offset
                offsets.put(record.key, record.offset)
    return request.end_offset


class _Group:
    """Neighbours of which one segment is made."""

    def __init__(self, request: CleanRequest, first: Source) -> None:
        self._request = request
        self._sources: list[Source] = []
        self._stem = _stem(request, first)
        self._tally = Tally(first.base_offset, request.index_interval_bytes)
        self._buffers: list[Buffer] = []
        self._buffered = 0
        self._aborts: list[int] = []
        self._is_changed = False
        self._file: File

    async def begin(self, disk: Disk) -> None:
        self._file = await _create(disk, self._stem + LOG_SUFFIX)

    def takes(self, source: Source) -> bool:
        """True when the segment would not grow too large, were all of the source to stay."""
        if not self._sources:
            return True
        request, size = self._request, self._tally.size + source.size
        entries = self._tally.entry_count + source.size // max(1, request.index_interval_bytes) + 2
        return (
            size <= min(request.segment_bytes, POSITION_MAX)
            and entries * ENTRY_SIZE <= request.segment_index_bytes
            and source.end_offset - self._sources[0].base_offset <= RELATIVE_OFFSET_MAX
        )

    async def add(self, disk: Disk, source: Source, cleaner: BatchCleaner, pace: Pace, *, is_last: bool) -> None:
        """Adds what stays of the source to the segment; ``is_last``: it is the last one of this cleaning."""
        self._is_changed = self._is_changed or len(self._sources) > 0
        self._sources.append(source)
        walk = BatchWalk(await _open(disk, self._request, source), 0, source.size, check_crc=True)
        while (header := await walk.next()) is not None:
            raw, tally = walk.batch, self._tally
            is_end = is_last and header.last_offset + 1 == source.end_offset
            batch = cleaner.clean(raw, header, is_end=is_end, may_grow=tally.size < POSITION_MAX - _ROOM_TO_GROW)
            self._is_changed = self._is_changed or batch is not raw
            await pace(len(raw) + len(batch or b""))
            if batch is None:
                continue
            self._buffers.append(batch)
            self._buffered += len(batch)
            kept = read_header(batch)
            tally.count_batch(len(batch), header.last_offset, kept.max_timestamp)
            if kept.is_control and kept.count:
                marker = end_marker_of(iterate_records(batch)[0])
                if marker is not None and not marker.is_commit:
                    self._aborts.append(header.last_offset)
            if self._buffered >= _WRITE_BYTES:
                await self._write()

    async def _write(self) -> None:
        if self._buffers:
            await self._file.append(self._buffers)
            self._buffers, self._buffered = [], 0

    async def end(self, disk: Disk) -> Cleaned | None:
        """Writes the files, durably; None, and no files, when everything stays as it was."""
        if not self._is_changed:
            await disk.remove(self._file.path)
            return None
        await self._write()
        await self._file.sync()
        for suffix, data in zip((INDEX_SUFFIX, TIME_INDEX_SUFFIX), self._tally.index_files()):
            index = await _create(disk, self._stem + suffix)
            if data:
                await index.append([data])
            await index.sync()
        return Cleaned(self._request.directory, self._sources, self._tally.size, self._tally.max_timestamp, self._aborts)


async def _create(disk: Disk, path: str) -> File:
    file = await disk.open(path + CLEANED_SUFFIX, create=True)
    await file.truncate(0)  # an earlier cleaning may have been cut short
    return file


CLEAN_JOB: Final = Job(f"{__name__}:CLEAN_JOB", _clean, CleanRequest, CleanResult, is_background=True)
