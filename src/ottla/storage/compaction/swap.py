"""Putting compacted segments in the place of those they came from, so that a crash finds either the one or the other, complete.

=================================  ==========================================  ==========================================
state of the directory             how it came about                           what a start makes of it
=================================  ==========================================  ==========================================
``.cleaned`` files                 the cleaning was not finished               removed
``.log.<end>.swap`` beside the     all is written, and the names are durable:  the old ones from its base up to <end> are
old segments                       from here on the new one counts             removed, and it gets its name
``.log.<end>.swap`` alone          the others have ``.deleted`` names          it gets its name
other ``.swap`` files              only indexes were renamed yet, or still     removed: an index is rebuilt
``.deleted`` files                 no longer needed                            removed
=================================  ==========================================  ==========================================

What is left of the records may end long before <end>, so that the name has to say which segments the new one replaces.
An index of aborted transactions is not missed when it is not there, so its name is durable before that of the log.
The directory is synced between the steps: a power cut leaves one of these states, never one in which the old segments are deleted
and the new one has not come. Source: the file names are Kafka's, but for <end>.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.ports import Disk
from ottla.storage.compaction.job import CLEANED_SUFFIX
from ottla.storage.segment.files import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)

SWAP_SUFFIX: Final = ".swap"
_LOG_NAME: Final = re.compile(r"(\d{20})\.log\.(\d+)\.swap")


async def prepare(disk: Disk, directory: str, base_offset: int, *, has_aborted: bool) -> None:
    """Renames the indexes to ``.swap`` files, which do not count before ``commit``: ``drop`` removes them again."""
    stem = f"{directory}/{file_stem(base_offset)}"
    if has_aborted:
        await disk.rename(stem + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX, stem + TRANSACTION_INDEX_SUFFIX + SWAP_SUFFIX)
        await disk.sync_dir(directory)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        await disk.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)


async def commit(disk: Disk, directory: str, base_offset: int, end_offset: int) -> None:
    """Renames the ``.cleaned`` log file to ``.swap``, durably: the cleaned segment counts from now on."""
    stem = f"{directory}/{file_stem(base_offset)}"
    await disk.rename(stem + LOG_SUFFIX + CLEANED_SUFFIX, _log_path(directory, base_offset, end_offset))
    await disk.sync_dir(directory)


async def finish(disk: Disk, directory: str, base_offset: int, end_offset: int) -> None:
    """Gives the ``.swap`` files the segment's names, durably. Whatever else they replace is durably deleted already."""
    await disk.sync_dir(directory)
    stem = f"{directory}/{file_stem(base_offset)}"
    for suffix in INDEX_SUFFIXES:
        if await disk.exists(stem + suffix + SWAP_SUFFIX):
            await disk.rename(stem + suffix + SWAP_SUFFIX, stem + suffix)
    await disk.rename(_log_path(directory, base_offset, end_offset), stem + LOG_SUFFIX)
    await disk.sync_dir(directory)


def _log_path(directory: str, base_offset: int, end_offset: int) -> str:
    return f"{directory}/{file_stem(base_offset)}{LOG_SUFFIX}.{end_offset}{SWAP_SUFFIX}"


async def drop(disk: Disk, directory: str, base_offset: int) -> None:
    """Deletes what was cleaned, and not committed."""
    stem = f"{directory}/{file_stem(base_offset)}"
    for name in (*(suffix + CLEANED_SUFFIX for suffix in SUFFIXES), *(suffix + SWAP_SUFFIX for suffix in INDEX_SUFFIXES)):
        if await disk.exists(stem + name):
            await disk.remove(stem + name)


async def settle(disk: Disk, directory: str) -> None:
    """Finishes or drops what a crash left of a swap; removes what was deleted."""
    names = await disk.list_dir(directory)
    for name in names:
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)):
            await disk.remove(f"{directory}/{name}")
    for name in names:
        if match := _LOG_NAME.fullmatch(name):
            await _finish_interrupted(disk, directory, int(match[1]), int(match[2]))
    for name in await disk.list_dir(directory) if any(name.endswith(SWAP_SUFFIX) for name in names) else ():
        if name.endswith(SWAP_SUFFIX):
            await disk.remove(f"{directory}/{name}")


async def _finish_interrupted(disk: Disk, directory: str, base_offset: int, end_offset: int) -> None:
    for name in await disk.list_dir(directory):
        if name.endswith(LOG_SUFFIX) and base_offset < int(name.split(".")[0]) < end_offset:
            for suffix in SUFFIXES:
                if await disk.exists(path := f"{directory}/{name.removesuffix(LOG_SUFFIX)}{suffix}"):
                    await disk.remove(path)
    await finish(disk, directory, base_offset, end_offset)
