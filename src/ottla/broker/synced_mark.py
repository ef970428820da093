"""Up to which offset the metadata log is known to be durable, in a file of its own.

Without it a start could not tell a torn tail, which nobody was told of, from damage to what was committed. The mark is written
after each sync of the log and not synced itself: a process that is killed leaves the newest one, a power cut an older one, which
is true as well.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.ports import Disk, File
from ottla.records.crc import crc32c

MARK_NAME: Final = "synced-offset"
_MARK: Final = struct.Struct(">qI")
_OFFSET: Final = struct.Struct(">q")


class SyncedMark:
    def __init__(self, file: File, offset: int) -> None:
        self._file = file
        self.offset = offset

    @classmethod
    async def open(cls, disk: Disk, folder: str) -> SyncedMark:
        """The mark of the log in the folder; 0 where there is none, or one that a power cut tore."""
        file = await disk.open(f"{folder}/{MARK_NAME}", create=True)
        data = await file.pread(0, _MARK.size)
        offset = 0
        if len(data) == _MARK.size:
            found, crc = _MARK.unpack(data)
            offset = found if crc == crc32c(data[: _OFFSET.size]) else 0
        return cls(file, offset)

    async def move(self, offset: int) -> None:
        """The log is durable up to ``offset``."""
        if offset > self.offset:
            await self._file.write_at(0, _MARK.pack(offset, crc32c(_OFFSET.pack(offset))))
            self.offset = offset

    async def close(self) -> None:
        await self._file.sync()
        await self._file.close()
