"""Compaction of a log's closed segments: a job (class c) that writes what stays beside what is there.

Three walks. Over all headers: where transactions ended. Over the dirty part, which no cleaning has seen yet: the newest offset
of each key, until the map is full. Over everything up to there: what stays of each batch (``batch_cleaning.py``), written to
``.cleaned`` files, in which several small segments become one.

The job changes nothing of the log. Whoever asked for it installs the files (``swap.py``) and then knows that everything below
``end_offset`` is clean. Source: Kafka's documentation of log compaction.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.ports import Buffer, Disk, File, Job, Pace
from ottla.records.batch import read_header
from ottla.records.control import end_marker_of
from ottla.records.iteration import iterate_records
from ottla.storage.batch_cleaning import BatchCleaner, Producer
from ottla.storage.counting import Tally
from ottla.storage.offset_index import RELATIVE_OFFSET_MAX
from ottla.storage.offset_map import OffsetMap
from ottla.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, POSITION_MAX, TIME_INDEX_SUFFIX, file_stem
from ottla.storage.time_index import ENTRY_SIZE
from ottla.storage.transaction_ends import TransactionEnds
from ottla.storage.walk import BatchWalk

CLEANED_SUFFIX: Final = ".cleaned"
_WRITE_BYTES: Final = 1 << 19
_ROOM_TO_GROW: Final = 1 << 24  # below the largest position: a batch with a delete horizon is longer by some bytes a record


class Source(msgspec.Struct, frozen=True):
    """A closed segment."""

    base_offset: int
    end_offset: int  # where the next one begins
    size: int


class CleanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``sources`` are the log's first segments, in order; nothing at or behind ``end_offset`` is touched.

    ``later`` are the segments after them, which may tell how a transaction ended that began in one of the sources.
    """

    folder: str
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
    """What came of some segments: the files with ``.cleaned`` names, durable. ``max_timestamp`` is -1 without times."""

    folder: str
    sources: list[Source]
    size: int
    max_timestamp: int

    @property
    def base_offset(self) -> int:
        return self.sources[0].base_offset


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
    cleaned = []
    for sources in groups(request, end_offset):
        result = await _write_group(disk, request, sources, cleaner, pace)
        if result is not None:
            cleaned.append(result)
    await disk.sync_dir(request.folder)
    return CleanResult(cleaned, end_offset, offsets.count, cleaner.removed_records)


def groups(request: CleanRequest, end_offset: int) -> list[list[Source]]:
    """Neighbours that together are no larger than a segment may be; segments from ``end_offset`` on are left alone."""
    found: list[list[Source]] = []
    for source in request.sources:
        if source.base_offset >= end_offset:
            break
        if found and _fits(request, found[-1], source):
            found[-1].append(source)
        else:
            found.append([source])
    return found


def _fits(request: CleanRequest, group: list[Source], source: Source) -> bool:
    size = sum(member.size for member in group) + source.size
    entries = size // max(1, request.index_interval_bytes) + len(group) + 1
    return (
        size <= min(request.segment_bytes, POSITION_MAX)
        and entries * ENTRY_SIZE <= request.segment_index_bytes
        and source.end_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )


def _stem(request: CleanRequest, source: Source) -> str:
    return f"{request.folder}/{file_stem(source.base_offset)}"


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
    """The map has the newest offset of each key; the offset up to which it was filled."""
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


async def _write_group(disk: Disk, request: CleanRequest, sources: list[Source], cleaner: BatchCleaner, pace: Pace) -> Cleaned | None:
    """The files of what stays; None, and no files, when that is everything, as it was."""
    stem = _stem(request, sources[0])
    file = await _create(disk, stem + LOG_SUFFIX)
    tally = Tally(sources[0].base_offset, request.index_interval_bytes)
    buffers: list[Buffer] = []
    buffered, is_changed = 0, len(sources) > 1
    for source in sources:
        walk = BatchWalk(await _open(disk, request, source), 0, source.size, check_crc=True)
        while (header := await walk.next()) is not None:
            raw = walk.batch
            is_last = header.last_offset + 1 == sources[-1].end_offset
            batch = cleaner.clean(raw, header, is_last=is_last, may_grow=tally.size < POSITION_MAX - _ROOM_TO_GROW)
            is_changed = is_changed or batch is not raw
            await pace(len(raw) + len(batch or b""))
            if batch is None:
                continue
            buffers.append(batch)
            buffered += len(batch)
            tally.count_batch(len(batch), header.last_offset, read_header(batch).max_timestamp)
            if buffered >= _WRITE_BYTES:
                await file.append(buffers)
                buffers, buffered = [], 0
    if not is_changed:
        await disk.remove(file.path)
        return None
    await file.append(buffers)
    await file.sync()
    for suffix, data in zip((INDEX_SUFFIX, TIME_INDEX_SUFFIX), tally.index_files()):
        index = await _create(disk, stem + suffix)
        await index.append([data])
        await index.sync()
    return Cleaned(request.folder, sources, tally.size, tally.max_timestamp)


async def _create(disk: Disk, path: str) -> File:
    file = await disk.open(path + CLEANED_SUFFIX, create=True)
    await file.truncate(0)  # an earlier cleaning may have been cut short
    return file


CLEAN_JOB: Final = Job(f"{__name__}:CLEAN_JOB", _clean, CleanRequest, CleanResult, is_background=True)
