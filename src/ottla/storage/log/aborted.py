"""Which transactions of a log were aborted: of its last segment in memory, of closed ones in their files, whose blocks are read on demand.

A look-up needs the blocks whose transactions may reach into what is read; their extremes, in memory, say which these are. As a rule that
is the block of the markers there, and that of a long transaction. A few blocks stay in memory afterwards. A segment may be deleted or
replaced while its block is read: the look-up is repeated then (``LogSegments.undisturbed``).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Final

from ottla.storage.segment.minima import Minima
from ottla.storage.segment.transaction_blocks import Block, beginnings_in, blocks_of, blocks_of_index, entries_between
from ottla.storage.segment.transaction_index import LOOKED_AT, Transaction, TransactionIndex

HELD_BLOCKS_MAX: Final = 4
_base: Final = attrgetter("base_offset")
_last: Final = attrgetter("last_offset")
_stable: Final = attrgetter("last_stable_offset")


class AbortedInLog:
    """The aborted transactions of one log. ``read_block`` reads one from its file; FileNotFoundError where the segment no longer exists."""

    __slots__ = ("_arriving", "_blocks", "_change_count", "_count", "_held", "_minima", "_read_block", "tail")

    def __init__(self, read_block: Callable[[Block], Awaitable[bytes]]) -> None:
        self.tail = TransactionIndex()
        """Those whose markers are in the last segment."""
        self._read_block = read_block
        self._blocks: list[Block] = []  # in the order of the log
        self._count = 0  # of their entries
        self._change_count = 0  # of the blocks
        self._minima: Minima | None = None  # of their first offsets, once they are asked for
        self._held: dict[Block, bytes] = {}  # the one used last comes last
        self._arriving: tuple[int, bytes] | None = None  # base offset and entries of a segment whose files have other names yet

    def __len__(self) -> int:
        return self._count + len(self.tail)

    # -- looking up

    async def beginnings(self, start_offset: int, end_offset: int) -> bytearray:
        """Returns the ``START`` of each transaction that may have a record there: what readers are given."""
        if not self._blocks:  # as in most logs
            return self.tail.beginnings(start_offset, end_offset)
        needed = self._needed(start_offset, end_offset)
        later = self._beginnings_in_tail(start_offset, end_offset)  # now: the last segment may be closed while blocks are read
        found = bytearray()
        for block in needed:
            found += beginnings_in(await self._data(block), start_offset, end_offset)
        return found + later

    async def between(self, start_offset: int, end_offset: int) -> list[Transaction]:
        """Returns the transactions whose markers are there."""
        at = bisect_left(self._blocks, start_offset, key=_last)
        needed, later = self._blocks[at:], self.tail.between(start_offset, end_offset)
        found: list[Transaction] = []
        for block in needed:
            if block.base_offset >= end_offset:
                break
            found += entries_between(await self._data(block), start_offset, end_offset)
        return found + later

    def _needed(self, start_offset: int, end_offset: int) -> Sequence[Block]:
        """Returns the blocks that may have such transactions: not ended before the start, and started before the end."""
        blocks = self._blocks
        at = bisect_left(blocks, start_offset, key=_last)
        end = min(bisect_left(blocks, end_offset, at, key=_stable) + 1, len(blocks))
        if end - at <= LOOKED_AT:
            return [block for block in itertools.islice(blocks, at, end) if block.first_offset < end_offset]
        if self._minima is None:
            self._minima = Minima(block.first_offset for block in blocks)
        return [blocks[index] for index in itertools.takewhile(end.__gt__, self._minima.below(end_offset, at))]

    def _beginnings_in_tail(self, start_offset: int, end_offset: int) -> bytearray:
        if self._blocks and self._blocks[-1].last_stable_offset >= end_offset:
            return bytearray()  # all was decided up to there when the last segment was created
        return self.tail.beginnings(start_offset, end_offset)

    def _known(self, block: Block) -> bytes | None:
        arriving = self._arriving
        if arriving is not None and arriving[0] == block.base_offset:
            return arriving[1][block.position : block.position + block.size_bytes]
        data = self._held.pop(block, None)
        if data is not None:
            self._held[block] = data
        return data

    async def _data(self, block: Block) -> bytes:
        data = self._known(block)
        if data is None:
            change_count = self._change_count
            data = await self._read_block(block)
            if self._change_count != change_count:  # it may be that of a segment which is no longer there
                return data
            self._held[block] = data
            if len(self._held) > HELD_BLOCKS_MAX:
                del self._held[next(iter(self._held))]
        return data

    # -- changes

    def fill(self, blocks: Sequence[Block], tail: TransactionIndex) -> None:
        """Takes what a log was found to have when it was opened."""
        self._put(0, len(self._blocks), blocks)
        self.tail = tail

    def close_segment(self, base_offset: int) -> None:
        """Leaves what the last segment has to its file: it is closed. The next one has none yet."""
        self._put(len(self._blocks), len(self._blocks), blocks_of_index(base_offset, self.tail))
        self.tail = TransactionIndex()

    def open_segment(self, base_offset: int, tail: TransactionIndex, end_offset: int) -> None:
        """Takes what a closed segment has that is the last one now: what came at ``end_offset`` or later is cut off."""
        self._put(bisect_left(self._blocks, base_offset, key=_base), len(self._blocks), ())
        self.tail = tail
        tail.truncate(end_offset)

    def clear(self) -> None:
        self.fill((), TransactionIndex())

    def drop_below(self, base_offset: int) -> None:
        """Drops the closed segments before that one."""
        self._put(0, bisect_left(self._blocks, base_offset, key=_base), ())

    def replace(self, start_offset: int, end_offset: int, data: bytes) -> None:
        """Takes what one segment has in place of the closed ones between the offsets. Its file cannot be read before ``has_arrived``."""
        first, after = (bisect_left(self._blocks, offset, key=_base) for offset in (start_offset, end_offset))
        self._put(first, after, blocks_of(start_offset, data))
        self._arriving = start_offset, data

    def has_arrived(self) -> None:
        """Notes that the file of the segment that came has its name."""
        self._arriving = None

    def _put(self, first: int, after: int, blocks: Sequence[Block]) -> None:
        self._count += sum(block.entry_count for block in blocks) - sum(block.entry_count for block in self._blocks[first:after])
        self._blocks[first:after] = blocks
        self._change_count += 1
        self._minima = None
        self._held.clear()
