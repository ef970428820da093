"""Times inside a batch: it has to be opened, and a large one is opened by a worker (class c)."""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.errors import WorkerDied
from ottla.ports import Disk, Job, Pace
from ottla.records.batch import BatchHeader
from ottla.records.iteration import walk_records

INLINE_BYTES_MAX: Final = 1 << 14
INLINE_RECORDS_MAX: Final = 2_000


class TimeRequest(msgspec.Struct, frozen=True):
    """The batch, and what its record has to be at or after: a time, and an offset. Without a time, the largest one is wanted."""

    batch: bytes
    timestamp_ms: int | None
    start_offset: int


class FoundTime(msgspec.Struct, frozen=True):
    """``offset`` is -1 when no record is there."""

    timestamp_ms: int
    offset: int


async def first_record_at(disk: Disk, batch: bytes, header: BatchHeader, timestamp_ms: int, start_offset: int) -> FoundTime:
    """Returns the first record. DecodeError when the records are not what the header says."""
    return await _find_somewhere(disk, header, TimeRequest(batch, timestamp_ms, start_offset))


async def largest_from(disk: Disk, batch: bytes, header: BatchHeader, start_offset: int) -> int:
    """Returns the largest time of the records at or after the offset; -1 when none has any. DecodeError as above."""
    return (await _find_somewhere(disk, header, TimeRequest(batch, None, start_offset))).timestamp_ms


async def _find_somewhere(disk: Disk, header: BatchHeader, request: TimeRequest) -> FoundTime:
    if len(request.batch) > INLINE_BYTES_MAX or header.count > INLINE_RECORDS_MAX:
        try:
            return await disk.work(TIME_JOB, request)
        except WorkerDied:
            pass  # it is slow here, and an answer all the same
    return _find(request)


def _find(request: TimeRequest) -> FoundTime:
    found = FoundTime(-1, -1)
    for record in walk_records(request.batch):
        if record.offset < request.start_offset:
            continue
        if request.timestamp_ms is not None:
            if record.timestamp_ms >= request.timestamp_ms:
                return FoundTime(record.timestamp_ms, record.offset)
        elif record.timestamp_ms > found.timestamp_ms:
            found = FoundTime(record.timestamp_ms, record.offset)
    return found


async def _find_away(disk: Disk, request: TimeRequest, pace: Pace) -> FoundTime:
    return _find(request)


TIME_JOB: Final = Job(f"{__name__}:TIME_JOB", _find_away, TimeRequest, FoundTime)
