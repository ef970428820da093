"""The files of a partition directory: their names, and what is done to all files of a segment together.

Offsets in names have 20 digits, so that names sort as offsets do.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Final

from ottla.ports import Disk

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SUFFIXES: Final = (*INDEX_SUFFIXES, LOG_SUFFIX)  # of a segment's files, the one without which there is no segment last
DELETED_SUFFIX: Final = ".deleted"  # after the others: of a file that is no longer needed
_NAME: Final = re.compile(r"(\d{20})(\.\w+)")


def file_stem(offset: int) -> str:
    """Returns the start of the names of a segment's files."""
    return f"{offset:020d}"


async def offsets_of(disk: Disk, directory: str, suffix: str) -> list[int]:
    """Returns the offsets in the names of the directory's files of one kind, rising."""
    matches = [_NAME.fullmatch(name) for name in await disk.list_dir(directory)]
    return sorted(int(match[1]) for match in matches if match and match[2] == suffix)


async def rename_files(disk: Disk, stem: str, suffixes: Sequence[str], ending: str) -> list[str]:
    """Adds the ending to the existing files of a segment; returns their paths."""
    renamed = []
    for suffix in suffixes:
        with contextlib.suppress(FileNotFoundError):
            await disk.rename(stem + suffix, stem + suffix + ending)
            renamed.append(stem + suffix + ending)
    return renamed


async def overwrite(disk: Disk, path: str, data: bytes) -> None:
    """Writes ``data`` as the file's only contents: for what can be rebuilt after a crash."""
    file = await disk.open(path, create=True)
    if file.size:
        await file.truncate(0)
    if data:
        await file.append([data])
    await file.close()
