"""Reading a log through, from a place to its end: for machines and images that are rebuilt from their records."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import BatchHeader, iterate_batches
from ottla.records.control import end_marker_of
from ottla.records.iteration import Record, walk_records
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.transaction_index import START

_READ_BYTES: Final = 1 << 18
"""Read and handed out before the caller may let others have their turn: some milliseconds."""


async def records_between(log: PartitionLog, offset: int, end_offset: int, *, check_crc: bool = False) -> AsyncIterator[list[Record]]:
    """Yields the records of one read at a time, without control batches. DecodeError for a bad batch; else as ``PartitionLog.read``."""
    async for batches, _ in _reads(log, offset, end_offset, check_crc=check_crc):
        yield [
            record for data, at, header in batches if not header.is_control for record in walk_records(data, at) if record.offset >= offset
        ]


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


class Batch(NamedTuple):
    """Records of a batch, made some at a time. With a ``producer_id`` they count when its transaction is committed."""

    producer_id: int | None
    records: Iterator[Record]


class Ended(NamedTuple):
    """The producer's transaction has ended."""

    producer_id: int
    is_commit: bool


async def replayed_between(log: PartitionLog, offset: int, end_offset: int) -> AsyncIterator[Batch | Ended]:
    """Yields what happened there, in order, without what was aborted.

    Where compaction has removed the marker of a committed transaction, it comes last. Those that are open at the log's end do not end.
    Which are aborted is known for each read by itself: compaction may remove an abort marker before it is read. Errors as
    ``records_between``.
    """
    undecided: dict[int, None] = {}
    async for batches, aborted in _reads(log, offset, end_offset, check_crc=False):
        for data, at, header in batches:
            if not aborted.admits(data, at, header):
                continue
            if header.is_control:
                undecided.pop(header.producer_id, None)
                marker = end_marker_of(next(walk_records(data, at))) if header.count and header.producer_id >= 0 else None
                yield Ended(header.producer_id, marker is None or marker.is_commit)
            else:
                if header.is_transactional:
                    undecided[header.producer_id] = None
                records = (record for record in walk_records(data, at) if record.offset >= offset)
                yield Batch(header.producer_id if header.is_transactional else None, records)
    for producer_id in undecided:
        known = log.producers.states.get(producer_id)
        if known is None or known.transaction_first_offset < 0:
            yield Ended(producer_id, is_commit=True)


async def _reads(
    log: PartitionLog, offset: int, end_offset: int, *, check_crc: bool
) -> AsyncIterator[tuple[list[tuple[bytes, int, BatchHeader]], AbortedTransactions]]:
    """Yields the bytes of each read, and where its batches are; with what was aborted there."""
    while offset < end_offset:
        part = await log.read(offset, max_bytes=_READ_BYTES, end_offset=end_offset, with_aborted=True)
        assert part is not None, "offsets below the end can be read"
        data = part.region.read()
        batches = [(data, position, header) for position, header in iterate_batches(data, check_crc=check_crc)]
        offset = batches[-1][2].last_offset + 1
        yield batches, AbortedTransactions(list(itertools.starmap(Aborted, START.iter_unpack(part.aborted))))
