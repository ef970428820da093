"""Damage that the scrubber found is remembered beside the segment, so that a start does not serve it as if it were intact.

``<base offset>.damaged`` says where the segment has to end and what was wrong. It is removed once the segment is intact again, or
no longer there.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import DamagedLog, StorageError, WorkerDied
from ottla.ports import Disk
from ottla.storage.recovery.scrubbing import SCRUB_JOB, ScrubRequest
from ottla.storage.segment.files import LOG_SUFFIX, file_stem, offsets_of

DAMAGED_SUFFIX: Final = ".damaged"


async def remember_damage(disk: Disk, found_by: ScrubRequest, reason: str) -> None:
    """Leaves a mark, so that the next start looks at the segment in the same way before it serves its partition."""
    path = found_by.path.removesuffix(LOG_SUFFIX) + DAMAGED_SUFFIX
    await disk.write_file_atomic(path, f"{found_by.end_offset}\n{reason}\n".encode())


async def check_damage(disk: Disk, directory: str) -> None:
    """Reads damaged segments again. DamagedLog when one still is; else nothing of it is remembered."""
    marked = await offsets_of(disk, directory, DAMAGED_SUFFIX)
    if not marked:
        return
    bases = await offsets_of(disk, directory, LOG_SUFFIX)
    for base in marked:
        if base in bases:
            path = f"{directory}/{file_stem(base)}"
            await _check(disk, path + LOG_SUFFIX, base, _end_offset_of(await disk.read_file(path + DAMAGED_SUFFIX)))
        await disk.remove(f"{directory}/{file_stem(base)}{DAMAGED_SUFFIX}")


def _end_offset_of(mark: bytes) -> int:
    """Returns where the segment has to end; -1 where nothing says so."""
    try:
        return int(mark.split(b"\n", 1)[0])
    except ValueError:
        return -1


async def _check(disk: Disk, path: str, base_offset: int, end_offset: int) -> None:
    file = await disk.open(path)
    size = file.size
    await file.close()
    try:
        found = await disk.work(SCRUB_JOB, ScrubRequest(path, base_offset, end_offset, size))
    except WorkerDied as error:
        raise StorageError(f"{path} was damaged, and it cannot be determined whether it still is: {error}") from error
    if found.damage is not None:
        raise DamagedLog(path, f"is damaged after its first {found.whole_bytes} bytes: {found.damage}")
