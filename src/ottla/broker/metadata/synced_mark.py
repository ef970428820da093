"""Up to which offset the metadata log is known to be durable, in a file of its own.

Without it a start could not distinguish a torn tail, which was never acknowledged, from damage to committed records. The mark is written
after each sync of the log and not synced itself: a process that is killed leaves the newest one, a power cut an older one, which
is true as well. The file holds the last few marks; the last complete one counts.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.ports import Disk, File
from ottla.records.crc import crc32c

MARK_NAME: Final = "synced-offset"
FILE_BYTES_MAX: Final = 4096
_MARK: Final = struct.Struct(">qI")
_OFFSET: Final = struct.Struct(">q")


class SyncedMark:
    def __init__(self, file: File, offset: int) -> None:
        self._file = file
        self.offset = offset

    @classmethod
    async def open(cls, disk: Disk, directory: str) -> SyncedMark:
        """Opens the mark of the log in the directory; 0 where there is no complete one."""
        file = await disk.open(f"{directory}/{MARK_NAME}", create=True)
        data = await file.pread(0, file.size)
        whole = len(data) // _MARK.size * _MARK.size
        marks = [offset for offset, crc in _MARK.iter_unpack(data[:whole]) if crc == crc32c(_OFFSET.pack(offset))]
        if whole != len(data):
            await file.truncate(whole)
        return cls(file, max(marks, default=0))

    async def move(self, offset: int) -> None:
        """Notes that the log is durable up to ``offset``."""
        if offset <= self.offset:
            return
        if self._file.size >= FILE_BYTES_MAX:
            await self._file.truncate(0)
        await self._file.append([_MARK.pack(offset, crc32c(_OFFSET.pack(offset)))])
        self.offset = offset

    async def lower(self, offset: int) -> None:
        """Lowers the mark durably before the log is cut, for it is about to end there."""
        if offset < self.offset:
            await self._file.truncate(0)
            await self._file.append([_MARK.pack(offset, crc32c(_OFFSET.pack(offset)))])
            await self._file.sync()
            self.offset = offset

    async def close(self) -> None:
        await self._file.sync()
        await self._file.close()
