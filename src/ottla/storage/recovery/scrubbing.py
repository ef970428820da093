"""Reading a segment to see whether it is still what was written: a background job (class c).

Disks lose bits in silence. A broker that sends files without reading them would not notice; clients check what they get, but
by then the good copies may no longer exist.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.errors import DecodeError
from ottla.ports import Disk, File, Job, Pace
from ottla.storage.segment.walk import BatchWalk


class ScrubRequest(msgspec.Struct, frozen=True):
    """``size`` bytes of the log file at ``path``, whose batches reach from ``base_offset`` to below ``end_offset`` (-1: unknown)."""

    path: str
    base_offset: int
    end_offset: int
    size: int


class Scrubbed(msgspec.Struct, frozen=True):
    """The first ``whole_bytes`` are complete batches in order, the last of which ends before ``end_offset``; then comes ``damage``."""

    whole_bytes: int
    batch_count: int
    end_offset: int
    damage: str | None = None


async def _scrub(disk: Disk, request: ScrubRequest, pace: Pace) -> Scrubbed:
    return await scrub(await disk.open(request.path), request, pace)


async def scrub(file: File, request: ScrubRequest, pace: Pace) -> Scrubbed:
    """Finds the intact part of the file."""
    walk = BatchWalk(file, 0, request.size, check_crc=True)
    whole_bytes, count, end_offset, damage = 0, 0, request.base_offset, None
    if file.size < request.size:
        return Scrubbed(0, 0, end_offset, f"the file has {file.size} bytes, {request.size} were written")
    try:
        while (header := await walk.next()) is not None:
            if header.base_offset < end_offset or 0 <= request.end_offset <= header.last_offset:
                damage = f"the batch at byte {walk.position} has offset {header.base_offset}, out of order"
                break
            await pace(header.size_bytes)
            whole_bytes, count, end_offset = walk.position + header.size_bytes, count + 1, header.last_offset + 1
    except DecodeError as error:
        damage = error.message
    if damage is None and 0 <= request.end_offset != end_offset:
        damage = f"it ends before offset {end_offset}, the next segment begins at {request.end_offset}"
    return Scrubbed(whole_bytes, count, end_offset, damage)


SCRUB_JOB: Final = Job(f"{__name__}:SCRUB_JOB", _scrub, ScrubRequest, Scrubbed, is_background=True)
