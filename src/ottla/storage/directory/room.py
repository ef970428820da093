"""Room on the disk of one log directory, and a reserve of it for what must be written though there is none.

While there is room a file of ``RESERVE_BYTES`` keeps some back. When the disk is full that file is removed, and partitions take nothing
more there: what it kept is for the metadata log, which has to say who else leads what this node cannot write. The disk has room again when
the file can be made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.ports import Disk
from ottla.storage.disk_errors import PASSING

RESERVE_BYTES: Final = 2 * 1024 * 1024
RESERVE_NAME: Final = ".ottla-reserve"


class Room:
    """``on_full`` is called when a partition was refused for want of room."""

    __slots__ = ("_disk", "_path", "is_full", "on_full")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk: Final = disk
        self._path: Final = f"{folder}/{RESERVE_NAME}"
        self.is_full = False  # partitions take nothing more: who sets it asks again whether there is room
        self.on_full: Callable[[], None] = lambda: None

    async def keep_back(self) -> bool:
        """Whether the reserve is there: it was, or there was room for it."""
        try:
            await self._disk.reserve(self._path, RESERVE_BYTES)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            return False
        return True

    async def give_up(self) -> bool:
        """The reserve can be used; False when there was none."""
        try:
            await self._disk.remove(self._path)
        except FileNotFoundError:
            return False
        return True
