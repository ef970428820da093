"""Putting compacted segments in the place of those they came from, so that a crash finds the one or the other, whole.

=================================  ==========================================  ==========================================
state of the folder                how it came about                           what a start makes of it
=================================  ==========================================  ==========================================
``.cleaned`` files                 the cleaning was not finished               removed
``.log.swap`` beside the old       all is written, and the names are durable:  the old ones that it covers are removed, and
segments                           from here on the new one counts             it gets its name
``.log.swap``, base segment only   the others have ``.deleted`` names          it gets its name
other ``.swap`` files              only indexes were renamed yet, or still     removed: an index is made anew
``.deleted`` files                 nobody needs them any more                  removed
=================================  ==========================================  ==========================================

The folder is synced between the steps: a power cut leaves one of these states, never one in which the old segments are gone
and the new one has not come. Source: the file names are Kafka's.
"""

from __future__ import annotations

from typing import Final

from ottla.ports import Disk
from ottla.storage.cleaning import CLEANED_SUFFIX
from ottla.storage.segment import DELETED_SUFFIX, LOG_SUFFIX, SUFFIXES, Segment, file_stem, rename_files

SWAP_SUFFIX: Final = ".swap"


async def commit(disk: Disk, folder: str, base_offset: int) -> None:
    """The ``.cleaned`` files are ``.swap`` files, durably: the cleaned segment counts now."""
    await rename_files(disk, f"{folder}/{file_stem(base_offset)}", CLEANED_SUFFIX, SWAP_SUFFIX)
    await disk.sync_dir(folder)


async def finish(disk: Disk, folder: str, base_offset: int) -> None:
    """The ``.swap`` files have the segment's names, durably. Whatever else they cover is durably gone already."""
    await disk.sync_dir(folder)
    await rename_files(disk, f"{folder}/{file_stem(base_offset)}", SWAP_SUFFIX, "")
    await disk.sync_dir(folder)


async def drop(disk: Disk, folder: str, base_offset: int) -> None:
    """The ``.cleaned`` files are gone: what they were to replace is no longer there."""
    for suffix in SUFFIXES:
        path = f"{folder}/{file_stem(base_offset)}{suffix}{CLEANED_SUFFIX}"
        if await disk.exists(path):
            await disk.remove(path)


async def settle(disk: Disk, folder: str, *, index_interval_bytes: int) -> None:
    """What a crash left of a swap is finished or dropped; what was deleted is gone."""
    names = await disk.list_dir(folder)
    for name in names:
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)):
            await disk.remove(f"{folder}/{name}")
    for name in names:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            await _finish_interrupted(disk, folder, int(name.split(".")[0]), index_interval_bytes)
    for name in await disk.list_dir(folder) if any(name.endswith(SWAP_SUFFIX) for name in names) else ():
        if name.endswith(SWAP_SUFFIX):
            await disk.remove(f"{folder}/{name}")


async def _finish_interrupted(disk: Disk, folder: str, base_offset: int, index_interval_bytes: int) -> None:
    stem = f"{folder}/{file_stem(base_offset)}"
    file = await disk.open(stem + LOG_SUFFIX + SWAP_SUFFIX)
    swapped = Segment(disk, folder, base_offset, file, index_interval_bytes=index_interval_bytes)
    end_offset = (await swapped.count(file.size, is_recovery=True)).end_offset
    for name in await disk.list_dir(folder):
        if name.endswith(LOG_SUFFIX) and base_offset < int(name.split(".")[0]) < end_offset:
            for suffix in SUFFIXES:
                if await disk.exists(path := f"{folder}/{name.removesuffix(LOG_SUFFIX)}{suffix}"):
                    await disk.remove(path)
    await finish(disk, folder, base_offset)
