"""A partition's log copied to another log directory while it grows, until only little is missing; the rest while appends are held.

The copy is in ``topic-0.<id>-future`` and is nothing but files until it gets the partition's name (``directory.py``). The bytes are
copied by a worker-process job, at its rate, and synced; only the last of them, while appends are held, are copied on the loop. What
compaction or retention takes away meanwhile is removed from the copy, too, and a segment that a follower cuts is copied again.
Indexes of closed segments come along; others are in memory or rebuilt.

Source: KIP-113.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from ottla.errors import StorageError
from ottla.pace import no_pace
from ottla.ports import Disk, File, Job, Pace
from ottla.storage.directory.epoch_file import write_epochs
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers import SNAPSHOT_SUFFIX
from ottla.storage.segment.files import INDEX_SUFFIXES, LOG_SUFFIX, SUFFIXES, file_stem, offsets_of
from ottla.storage.segment.segment import Segment

SMALL_BYTES: Final = 1 << 20
"""So much may be missing when appends are held: about what a disk writes in ten milliseconds."""
ROUNDS_MAX: Final = 20
"""A log that grows as fast as it is copied is copied without a limit of the rate after so many rounds."""

PIECE_SECONDS: Final = 5
"""So long a changed rate may take until it holds."""
PIECE_BYTES_MAX: Final = 1 << 26
"""What a worker copies before it reports: the rate that is shown follows, and a disk syncs so much within a second."""
_CHUNK_BYTES: Final = 1 << 20


def _without_limit() -> float:
    return math.inf


def _ignored(size_bytes: int) -> None:
    """Counts nothing."""


class CopyRequest(msgspec.Struct, frozen=True):
    """The bytes from ``start`` to ``end`` of the file ``source`` go to the end of the file ``target``, which has ``start`` bytes."""

    source: str
    target: str
    start: int
    end: int


class Copied(msgspec.Struct, frozen=True):
    """All of it is there and durable."""

    size: int


async def _copy(disk: Disk, request: CopyRequest, pace: Pace) -> Copied:
    source, target = await disk.open(request.source), await disk.open(request.target, create=True)
    if target.size > request.start:
        await target.truncate(request.start)
    position = request.start
    while position < request.end:
        data = await source.pread(position, min(_CHUNK_BYTES, request.end - position))
        if not data:
            raise OSError(f"{request.source} ends at byte {position}, not {request.end}")
        await target.append([data])
        position += len(data)
        await pace(len(data))
    await target.sync()
    await source.close()
    await target.close()
    return Copied(position)


COPY_JOB: Final = Job(f"{__name__}:COPY_JOB", _copy, CopyRequest, Copied, is_background=True)


class ReplicaCopy:
    """The copy of one log in ``directory``, which exists and is empty."""

    def __init__(self, disk: Disk, log: PartitionLog, directory: str, *, on_copied: Callable[[int], None] = _ignored) -> None:
        """Makes a copy; ``on_copied`` is called with each number of bytes that have been copied."""
        self._on_copied = on_copied
        self._disk = disk
        self._log = log
        self._directory = directory
        self._sizes: dict[Segment, int] = {}  # what is copied, and synced
        self._cuts: dict[Segment, int] = {}  # how often each of them had been cut before that
        self._has_indexes: set[Segment] = set()

    @property
    def size_bytes(self) -> int:
        """How much is copied."""
        return sum(self._sizes.values())

    @property
    def missing_bytes(self) -> int:
        """How much is not."""
        return sum(segment.size - (self._sizes.get(segment, 0) if self._is_valid(segment) else 0) for segment in self._log.segments)

    @property
    def offset_lag(self) -> int:
        """How many offsets are missing, at most: a segment that is copied in part counts entirely."""
        parts = [segment for segment in self._log.segments if self._sizes.get(segment) != segment.size or not self._is_valid(segment)]
        return self._log.log_end_offset - parts[0].base_offset if parts else 0

    def _is_valid(self, segment: Segment) -> bool:
        """True when what is copied of the segment is what it has: it was not cut since."""
        return self._cuts.get(segment, segment.cut_count) == segment.cut_count

    async def catch_up(self, *, bytes_per_second: Callable[[], float], settled: Callable[[], Awaitable[None]]) -> None:
        """Copies until little is missing. OSError when a disk refuses; KafkaError when the worker died, or the log fails or is deleted.

        The rate is asked for again after ``PIECE_SECONDS`` of work: it may be changed while the replica moves.
        ``settled`` returns when no segment is being replaced: one that has just come has the name of another one until then.
        """
        rounds = 0
        while self.missing_bytes > SMALL_BYTES or not self._sizes:
            await self._copy_missing(bytes_per_second if rounds < ROUNDS_MAX else _without_limit, settled)
            rounds += 1

    async def finish(self) -> None:
        """Copies what is missing, durably, and drops what is too much. Appends must be held, and little be missing: no worker is used."""
        await self._copy_missing(None)
        for segment in [copied for copied in self._sizes if copied not in self._log.segments]:
            await self._drop(segment)
        for offset in (await offsets_of(self._disk, self._log.directory, SNAPSHOT_SUFFIX))[-2:]:  # older ones only make recovery shorter
            name = f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"
            await self._disk.write_file_atomic(f"{self._directory}/{name}", await self._disk.read_file(f"{self._log.directory}/{name}"))
        await write_epochs(self._disk, self._directory, self._log.epochs)
        await self._disk.sync_dir(self._directory)

    async def open_files(self, directory: str) -> list[File]:
        """Opens the log file of each segment, in order, in the directory that the copy has become."""
        return [await self._disk.open(f"{directory}/{file_stem(segment.base_offset)}{LOG_SUFFIX}") for segment in self._log.segments]

    async def _copy_missing(
        self, bytes_per_second: Callable[[], float] | None, settled: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Copies what is missing by a worker at that rate, or here and now when it is None."""
        for segment in list(self._log.segments):
            if settled is not None:
                await settled()
            if self._log.is_failed:  # its segments are retired, and no round would ever copy them
                raise StorageError(f"the log in {self._log.directory} has failed, or was deleted")
            if segment.is_retired:  # replaced or deleted while another one was copied
                continue
            cuts = segment.cut_count  # of one that is cut from here on, too, all is copied again
            bases = [other for other in self._sizes if other.base_offset == segment.base_offset]
            for other in bases:
                if other is not segment or not self._is_valid(segment):
                    await self._drop(other)
            self._cuts[segment] = cuts
            start, end = self._sizes.get(segment, 0), segment.size
            if start == end and segment in self._sizes:
                continue
            target = f"{self._directory}/{file_stem(segment.base_offset)}{LOG_SUFFIX}"
            try:
                if bytes_per_second is None:
                    await _copy(self._disk, CopyRequest(segment.path, target, start, end), no_pace)
                    self._on_copied(end - start)
                else:
                    await self._copy_in_pieces(segment, target, start, end, bytes_per_second)
            except OSError:
                if not segment.has_changed_since(cuts):
                    raise
            self._sizes[segment] = end  # of one that was retired meanwhile, it may be another's bytes: the next round drops them
        for segment in self._log.segments[:-1]:
            if segment in self._sizes and segment not in self._has_indexes and not segment.is_retired:
                await self._copy_indexes(segment)
                self._has_indexes.add(segment)

    async def _copy_in_pieces(self, segment: Segment, target: str, start: int, end: int, bytes_per_second: Callable[[], float]) -> None:
        position = start
        while True:
            rate = bytes_per_second()
            size_max = PIECE_BYTES_MAX if math.isinf(rate) else min(PIECE_BYTES_MAX, max(_CHUNK_BYTES, int(rate * PIECE_SECONDS)))
            piece_end = min(end, position + size_max)
            await self._disk.work(COPY_JOB, CopyRequest(segment.path, target, position, piece_end), bytes_per_second=rate)
            self._on_copied(piece_end - position)
            position = self._sizes[segment] = piece_end
            if position >= end:
                return

    async def _copy_indexes(self, segment: Segment) -> None:
        stem = file_stem(segment.base_offset)
        for suffix in INDEX_SUFFIXES:
            source = f"{self._log.directory}/{stem}{suffix}"
            try:
                data = await self._disk.read_file(source)
            except FileNotFoundError:
                continue
            await self._disk.write_file_atomic(f"{self._directory}/{stem}{suffix}", data)

    async def _drop(self, segment: Segment) -> None:
        del self._sizes[segment]
        self._cuts.pop(segment, None)
        self._has_indexes.discard(segment)
        stem = file_stem(segment.base_offset)
        for suffix in SUFFIXES:
            if await self._disk.exists(f"{self._directory}/{stem}{suffix}"):
                await self._disk.remove(f"{self._directory}/{stem}{suffix}")
