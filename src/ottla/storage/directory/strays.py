"""Stray replicas: partition directories that a start found and no topic claimed. They are kept until an operator removes them.

A kill between DeleteTopics and the renaming of its directories leaves one, and so does a log directory of another time.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

import msgspec

from ottla.errors import StorageError
from ottla.ports import Disk
from ottla.storage.directory.directory import META_NAME, is_used, topic_id_in

_STRAY: Final = re.compile(r"(.+-\d+)\.[0-9a-zA-Z_-]+-stray")


class Stray(msgspec.Struct, frozen=True):
    """``partition`` is what it was; a very long topic name is cut. ``topic_id`` is None where its creation was cut short."""

    path: str
    partition: str
    topic_id: str | None
    size_bytes: int


async def find_strays(disk: Disk, directory: str) -> list[Stray]:
    """Returns the stray replicas of the log directory, by name. StorageError when it is not one of ours."""
    if not await is_used(disk, directory):
        raise StorageError(f"{directory} has no {META_NAME}: it is not a log directory")
    found = []
    for name in await disk.list_dir(directory):
        path = f"{directory}/{name}"
        if (match := _STRAY.fullmatch(name)) and await disk.is_dir(path):
            found.append(Stray(path, match[1], await topic_id_in(disk, path), await _size_bytes(disk, path)))
    return found


async def remove_stray(disk: Disk, stray: Stray) -> None:
    """Deletes the replica, durably. The caller holds the directory's lock."""
    await disk.remove_tree(stray.path)
    await disk.sync_dir(posixpath.dirname(stray.path))


async def _size_bytes(disk: Disk, path: str) -> int:
    total = 0
    for name in await disk.list_dir(path):
        file = await disk.open(f"{path}/{name}")
        total += file.size
        await file.close()
    return total
