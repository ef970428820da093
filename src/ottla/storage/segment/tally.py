"""What a walk over a segment's log file finds: how far it is intact, and all else that is known of it.

Recovery and index rebuilds need the same walk. A long one is a worker-process job: the loop must not block while Python
goes over a gigabyte of batches. A short one is done at once, as a process takes longer to start than it takes to do.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.errors import DecodeError, WorkerDied
from ottla.ports import Disk, File, Job, Pace
from ottla.records.batch import BatchHeader
from ottla.storage.segment.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from ottla.storage.segment.time_index import TimeIndex
from ottla.storage.segment.walk import BatchWalk

INLINE_BYTES_MAX: Final = 4 << 20
"""More than this is a job. Measured: the smallest batches are walked at 70 MiB/s, so these bytes take 55 ms at most (2 ms with
batches of 16 KiB), while a worker process is up after 80 to 100 ms. Others have their turns meanwhile."""

PACE_BYTES: Final = 64 << 10
"""A piece of a walk: the smallest batches in it take 2 ms on a busy machine."""


class CountRequest(msgspec.Struct, frozen=True):
    """``size`` bytes of the log file at ``path``. A recovery checks CRCs and ends at the first batch that is torn or out of order."""

    path: str
    base_offset: int
    size: int
    index_interval_bytes: int
    is_recovery: bool


class Counted(msgspec.Struct):
    """The indexes of the first ``size`` bytes, which are complete batches: as their files have them, but for the newest time."""

    size: int
    end_offset: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    bytes_since_entry: int
    offset_index: bytes
    time_index: bytes
    epochs: list[tuple[int, int]]  # each leader epoch, and the first offset that it was found at


async def count(disk: Disk, file: File, request: CountRequest, *, may_be_a_job: bool = True) -> Counted:
    """Returns what the walk finds. DecodeError where there is no batch, unless it is a recovery. ``file`` is open at the request's path."""
    if may_be_a_job and request.size > INLINE_BYTES_MAX:
        try:
            return await disk.work(COUNT_JOB, request)
        except (WorkerDied, FileNotFoundError):
            pass  # a log must open all the same, though the system ends every worker for want of memory, or the file has another name now
    return await _count(file, request, disk.take_turns)


async def _count_by_path(disk: Disk, request: CountRequest, pace: Pace) -> Counted:
    return await _count(await disk.open(request.path), request, pace)


async def _count(file: File, request: CountRequest, pace: Pace) -> Counted:
    walk = BatchWalk(file, 0, request.size, check_crc=request.is_recovery)
    tally = Tally(request.base_offset, request.index_interval_bytes)
    end_offset, epochs, paced = request.base_offset, list[tuple[int, int]](), 0
    while (header := await _next(walk, request)) is not None and not (request.is_recovery and not _follows(header, end_offset, request)):
        tally.count_batch(header.size_bytes, header.last_offset, header.max_timestamp)
        end_offset = header.last_offset + 1
        if not epochs or epochs[-1][0] != header.leader_epoch:
            epochs.append((header.leader_epoch, header.base_offset))
        if tally.size - paced > PACE_BYTES:
            await pace(tally.size - paced)
            paced = tally.size
    return tally.counted(end_offset, epochs)


def _follows(header: BatchHeader, end_offset: int, request: CountRequest) -> bool:
    """True when the batch's offsets may be next; no CRC covers them."""
    return header.base_offset >= end_offset and header.last_offset - request.base_offset <= RELATIVE_OFFSET_MAX


async def _next(walk: BatchWalk, request: CountRequest) -> BatchHeader | None:
    try:
        return await walk.next()
    except DecodeError:
        if request.is_recovery:
            return None  # a torn tail: what a crash leaves
        raise


class Tally:
    """The batches from the start of a segment up to ``size``: their times, and both indexes while they are in memory."""

    __slots__ = (
        "_bytes_since_entry", "_index_interval_bytes", "_indexes", "base_offset", "first_timestamp", "max_timestamp",
        "max_timestamp_offset", "size",
    )  # fmt: skip

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self._index_interval_bytes = index_interval_bytes
        self.base_offset = base_offset
        self._indexes: tuple[OffsetIndex, TimeIndex] | None = (OffsetIndex(base_offset), TimeIndex(base_offset))
        self._bytes_since_entry = 0
        self.size = 0
        self.first_timestamp = -1  # largest of the first batch; segment.ms counts from it
        self.max_timestamp = -1
        self.max_timestamp_offset = -1  # last offset of the first batch that had it

    def count_batch(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Counts the batch at the segment's end; indexes it once enough bytes follow the last entry."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            assert self._indexes is not None, "a growing segment has its indexes in memory"
            self._indexes[0].append(last_offset, self.size)
            self._indexes[1].append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        if self.size == 0:
            self.first_timestamp = max_timestamp
        self.size += size

    @property
    def entry_count(self) -> int:
        """Of each index."""
        assert self._indexes is not None, "a growing segment has its indexes in memory"
        return len(self._indexes[0])

    def index_files(self) -> tuple[bytes, bytes]:
        """Returns the contents of both index files, the newest time included."""
        assert self._indexes is not None, "indexes are written by the tally that filled them"
        offset_index, time_index = self._indexes
        if self.max_timestamp_offset >= 0:
            time_index.append(self.max_timestamp, self.max_timestamp_offset)
        return offset_index.to_bytes(), time_index.to_bytes()

    def counted(self, end_offset: int, epochs: list[tuple[int, int]]) -> Counted:
        assert self._indexes is not None, "counted in memory"
        return Counted(
            self.size, end_offset, self.first_timestamp, self.max_timestamp, self.max_timestamp_offset, self._bytes_since_entry,
            self._indexes[0].to_bytes(), self._indexes[1].to_bytes(), epochs,
        )  # fmt: skip

    def take_over(self, counted: Counted) -> None:
        """Takes all figures over as they were counted."""
        self.size = counted.size
        self.first_timestamp = counted.first_timestamp
        self.max_timestamp, self.max_timestamp_offset = counted.max_timestamp, counted.max_timestamp_offset
        self._bytes_since_entry = counted.bytes_since_entry
        self._indexes = (
            OffsetIndex.from_bytes(counted.offset_index, self.base_offset, log_size=counted.size),
            TimeIndex.from_bytes(counted.time_index, self.base_offset),
        )


COUNT_JOB: Final = Job(f"{__name__}:COUNT_JOB", _count_by_path, CountRequest, Counted)
