"""Files of a simulated disk: each has two contents, what was written and what is durable."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import ClassVar, Final, Protocol

from ottla.ports import Buffer

SECTOR: Final = 512
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

    __slots__ = ("durable", "modified_ms", "number", "reserved", "written")
    _numbers: ClassVar = itertools.count(1)

    def __init__(self) -> None:
        self.written = bytearray()
        self.durable = b""
        self.modified_ms = 0
        self.number = next(self._numbers)
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
        """Closes the file, which makes nothing durable."""


def surviving_content(rng: random.Random, inode: Inode, mode: str) -> bytes:
    written, durable = bytes(inode.written), inode.durable
    if mode == "everything" or written == durable:
        return written
    if mode == "nothing":
        return durable
    if not written.startswith(durable):  # overwritten or cut: one of the two states
        return written if rng.random() < 0.5 else durable
    kept = len(durable) + rng.randrange(len(written) - len(durable) + 1)
    if rng.random() < 0.5:
        kept -= (kept - len(durable)) % SECTOR
    torn = written[:kept]
    if rng.random() < 0.3:  # the size was extended, the data never came
        torn += bytes(min(rng.randrange(4 * SECTOR), len(written) - kept))
    return torn
