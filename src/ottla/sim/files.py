"""Files of a simulated disk: each has two contents, what was written and what is durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.ports import Buffer

Argument = bytes | int | str


class Owner(Protocol):
    """The disk, as its files know it."""

    preads: int

    async def step(self, operation: str, path: str, *arguments: Argument) -> None: ...
    async def done(self) -> None: ...
    async def look(self, operation: str, path: str) -> None: ...
    def now_ms(self) -> int: ...
    def take_room(self, path: str, size_bytes: int) -> None: ...


class Inode:
    """One file's contents. ``durable`` is what survives a power cut by itself."""

    __slots__ = ("durable", "modified_ms", "reserved", "written")

    def __init__(self) -> None:
        self.written = bytearray()
        self.durable = b""
        self.modified_ms = 0
        self.reserved = 0  # bytes that it takes up beside what was written


class SimFileRegion:
    __slots__ = ("_inode", "length", "offset")

    def __init__(self, inode: Inode, offset: int, length: int) -> None:
        self._inode = inode
        self.offset = offset
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return bytes(self._inode.written[self.offset : self.offset + self.length])


class SimFile:
    def __init__(self, disk: Owner, path: str, inode: Inode) -> None:
        self.disk = disk
        self.inode = inode
        self.path = path

    @property
    def size(self) -> int:
        return len(self.inode.written)

    async def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)  # at the call: what the caller does with its buffers afterwards is its own business
        await self.disk.step("append", self.path, data)
        self.disk.take_room(self.path, len(data))
        position = len(self.inode.written)
        self.inode.written += data
        self.inode.modified_ms = self.disk.now_ms()
        await self.disk.done()
        return position

    async def pread(self, offset: int, length: int) -> bytes:
        self.disk.preads += 1
        await self.disk.look("pread", self.path)
        return bytes(self.inode.written[offset : offset + length])

    def region(self, offset: int, length: int) -> SimFileRegion:
        assert 0 <= offset <= offset + length <= self.size, "regions lie inside the file"
        return SimFileRegion(self.inode, offset, length)

    async def truncate(self, size: int) -> None:
        await self.disk.step("truncate", self.path, size)
        del self.inode.written[size:]
        self.inode.written.extend(bytes(size - len(self.inode.written)))
        await self.disk.done()

    async def sync(self) -> None:
        await self.disk.step("sync", self.path)
        self.inode.durable = bytes(self.inode.written)
        await self.disk.done()

    async def close(self) -> None:
        """Closing makes nothing durable."""
