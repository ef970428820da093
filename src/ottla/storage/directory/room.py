"""Room on the disk of one log directory, and a reserve of it for what must be written though there is none.

While there is room a file of ``RESERVE_BYTES`` keeps some back. When the disk is full that file is removed, and partitions take nothing
more there: what it kept is for the metadata log, which has to say who else leads what this node cannot write. The disk has room again when
the file can be made again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from ottla.ports import Disk
from ottla.storage.disk_errors import FULL, PASSING

T = TypeVar("T")

RESERVE_BYTES: Final = 2 * 1024 * 1024
RESERVE_NAME: Final = ".ottla-reserve"


class Room:
    """``on_full`` is called when a partition was refused for want of room."""

    __slots__ = ("_directory", "_disk", "_path", "is_full", "on_full")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk: Final = disk
        self._directory: Final = directory
        self._path: Final = f"{directory}/{RESERVE_NAME}"
        self.is_full = False  # partitions take nothing more: who sets it asks again whether there is room
        self.on_full: Callable[[], None] = lambda: None

    async def keep_back(self) -> bool:
        """Makes the reserve, if there is room for twice its size. Returns whether it exists."""
        try:
            if not await self._disk.exists(self._path) and (await self._disk.space(self._directory))[1] < 2 * RESERVE_BYTES:
                return False
            await self._disk.reserve(self._path, RESERVE_BYTES)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            return False
        return True

    async def surely(self, write: Callable[[], Awaitable[T]]) -> T:
        """Returns what ``write`` returns, which may be tried twice: into the reserve, where there is no other room."""
        try:
            return await write()
        except OSError as error:
            if error.errno not in FULL:
                raise
        await self.give_up()
        self.on_full()
        return await write()

    async def give_up(self) -> None:
        """Frees the reserve's space, if there was one."""
        with suppress(FileNotFoundError):  # another was quicker
            await self._disk.remove(self._path)
