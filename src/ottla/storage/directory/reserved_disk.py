"""A disk on which all that needs room finds it in a directory's reserve when there is no other: for the log that must not be refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from ottla.ports import Buffer, Disk, File
from ottla.storage.directory.room import Room

_NEED_ROOM: Final = ("write_file_atomic", "make_dirs", "rename")


def reserved(disk: Disk, room: Room) -> Disk:
    """Returns the disk, which tries what it refuses for want of room once more in the reserve of ``room``. A refused sync has failed."""
    return cast(Disk, _ReservedDisk(disk, room))


class _ReservedDisk:
    def __init__(self, disk: Disk, room: Room) -> None:
        self._disk = disk
        self._room = room

    def __getattr__(self, name: str) -> Any:
        below = getattr(self._disk, name)
        if name not in _NEED_ROOM:
            return below

        def surely(*arguments: Any, **more: Any) -> Awaitable[Any]:
            return self._room.surely(lambda: below(*arguments, **more))

        return surely

    async def open(self, path: str, *, create: bool = False) -> File:
        return cast(File, _ReservedFile(await self._room.surely(lambda: self._disk.open(path, create=create)), self._room.surely))


class _ReservedFile:
    def __init__(self, file: File, surely: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
        self._file = file
        self._surely = surely

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    async def append(self, buffers: Sequence[Buffer]) -> int:
        position: int = await self._surely(lambda: self._file.append(buffers))
        return position

    async def truncate(self, size: int) -> None:
        await self._surely(lambda: self._file.truncate(size))
