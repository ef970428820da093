"""Entries of aborted transactions in the files of closed segments, by blocks: what memory knows of each, and what one has when it is read.

Of a block only its place and its extremes stay in memory; its entries, as the file has them, are searched where they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from ottla.errors import DecodeError
from ottla.ports import Disk
from ottla.storage.segment.transaction_index import ENTRY, START, Transaction, TransactionIndex, checked_entries

BLOCK_ENTRIES: Final = 1024


class Block(NamedTuple):
    """Entries that follow each other in the file of the segment that starts at ``base_offset``; ``position`` in bytes."""

    base_offset: int
    position: int
    size_bytes: int
    first_offset: int  # the smallest
    last_offset: int
    last_stable_offset: int

    @property
    def entry_count(self) -> int:
        return self.size_bytes // ENTRY.size


def blocks_of(base_offset: int, data: bytes) -> list[Block]:
    """Returns the blocks of the segment's entries. DecodeError where these cannot be any."""
    found: list[Block] = []
    block_bytes = BLOCK_ENTRIES * ENTRY.size
    for position in range(0, len(data), block_bytes):
        found.append(_block(base_offset, position, data[position : position + block_bytes], found[-1] if found else None))
    return found


def blocks_of_index(base_offset: int, index: TransactionIndex) -> list[Block]:
    """Returns the blocks that the segment's entries are in its file."""
    found: list[Block] = []
    for at in range(0, len(index), BLOCK_ENTRIES):
        count = min(BLOCK_ENTRIES, len(index) - at)
        found.append(Block(base_offset, at * ENTRY.size, count * ENTRY.size, *index.extremes(at, at + count)))
    return found


async def scan_blocks(disk: Disk, path: str, base_offset: int) -> list[Block]:
    """Returns the blocks of the segment's file, which is read one by one. DecodeError as ``blocks_of``."""
    found: list[Block] = []
    file = await disk.open(path)
    try:
        block_bytes = BLOCK_ENTRIES * ENTRY.size
        for position in range(0, file.size, block_bytes):
            data = await file.pread(position, min(block_bytes, file.size - position))
            found.append(_block(base_offset, position, data, found[-1] if found else None))
    finally:
        await file.close()
    return found


async def read_block(disk: Disk, path: str, block: Block) -> bytes:
    """Reads the block from its segment's file. DecodeError when that ends before it."""
    file = await disk.open(path)
    try:
        data = await file.pread(block.position, block.size_bytes)
    finally:
        await file.close()
    if len(data) != block.size_bytes:
        raise DecodeError(f"{path} ends before byte {block.position + block.size_bytes}")
    return data


def _block(base_offset: int, position: int, data: bytes, before: Block | None) -> Block:
    after = (-1, -1) if before is None else (before.last_offset, before.last_stable_offset)
    entries = list(checked_entries(data, after=after))
    _, _, last_offset, last_stable_offset = entries[-1]
    return Block(base_offset, position, len(data), min(entry[1] for entry in entries), last_offset, last_stable_offset)


def entries_between(data: bytes, start_offset: int, end_offset: int) -> Iterator[Transaction]:
    """Yields the block's transactions whose markers are there."""
    part = data[_at(data, start_offset) * ENTRY.size : _at(data, end_offset) * ENTRY.size]
    return (Transaction(*columns) for _, *columns in ENTRY.iter_unpack(part))


def with_markers_at(data: bytes, offsets: Set[int]) -> bytes:
    """Returns the entries of a file whose markers are there."""
    kept = [index for index, entry in enumerate(ENTRY.iter_unpack(data)) if entry[3] in offsets]
    return b"".join(data[index * ENTRY.size : (index + 1) * ENTRY.size] for index in kept)


def beginnings_in(data: bytes, start_offset: int, end_offset: int) -> bytes:
    """Returns the ``START`` of the block's transactions that may have a record there."""
    at = _at(data, start_offset)
    count = len(data) // ENTRY.size
    end = min(bisect_left(range(count), end_offset, at, key=lambda index: _stable_offset(data, index)) + 1, count)
    part = data[at * ENTRY.size : end * ENTRY.size]
    return b"".join(START.pack(producer_id, first) for _, producer_id, first, _, _ in ENTRY.iter_unpack(part) if first < end_offset)


def _at(data: bytes, offset: int) -> int:
    """Returns the first entry whose marker is there or later."""
    return bisect_left(range(len(data) // ENTRY.size), offset, key=lambda index: _last_offset(data, index))


def _last_offset(data: bytes, index: int) -> int:
    last_offset: int = ENTRY.unpack_from(data, index * ENTRY.size)[3]
    return last_offset


def _stable_offset(data: bytes, index: int) -> int:
    stable_offset: int = ENTRY.unpack_from(data, index * ENTRY.size)[4]
    return stable_offset
