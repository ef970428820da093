"""Reading a log through, from a place to its end: for machines and images that are rebuilt from their records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import BatchHeader, iterate_batches
from ottla.records.iteration import Record, walk_records
from ottla.storage.log.partition_log import PartitionLog

_READ_BYTES: Final = 1 << 18
"""Read and handed out before the caller may let others have their turn: some milliseconds."""


async def records_between(log: PartitionLog, offset: int, end_offset: int, *, check_crc: bool = False) -> AsyncIterator[list[Record]]:
    """The records of a read at a time, without control batches. DecodeError for what is no batch; StorageError as ``PartitionLog.read``."""
    async for batches in _reads(log, offset, end_offset, check_crc=check_crc):
        yield [
            record for data, at, header in batches if not header.is_control for record in walk_records(data, at) if record.offset >= offset
        ]


async def decided_between(log: PartitionLog, offset: int, end_offset: int) -> AsyncIterator[Iterator[Record]]:
    """What counts of it, the records of a batch at a time, made some at a time, as the iterator comes to them.

    Those of a transaction come when its commit marker does, or last where compaction has removed that; those of one that was aborted, or is
    still open at the log's end, do not. Errors as ``records_between``.
    """
    aborted = AbortedTransactions(log.aborted.reaching_into(offset, end_offset))
    undecided: dict[int, list[bytes]] = {}  # batches by producer
    async for batches in _reads(log, offset, end_offset, check_crc=False):
        for data, at, header in batches:
            if not aborted.admits(data, at, header):
                continue
            if header.is_control:
                for batch in undecided.pop(header.producer_id, ()):
                    yield walk_records(batch, 0)
            elif header.is_transactional:
                undecided.setdefault(header.producer_id, []).append(bytes(data[at : at + header.size_bytes]))
            else:
                yield (record for record in walk_records(data, at) if record.offset >= offset)
    for producer_id, found in undecided.items():
        known = log.producers.states.get(producer_id)
        if known is None or known.transaction_first_offset < 0:
            for batch in found:
                yield walk_records(batch, 0)


async def _reads(
    log: PartitionLog, offset: int, end_offset: int, *, check_crc: bool
) -> AsyncIterator[list[tuple[bytes, int, BatchHeader]]]:
    """The bytes of each read, and where its batches are."""
    while offset < end_offset:
        part = await log.read(offset, max_bytes=_READ_BYTES, end_offset=end_offset)
        assert part is not None, "offsets below the end can be read"
        data = part.region.read()
        batches = [(data, position, header) for position, header in iterate_batches(data, check_crc=check_crc)]
        offset = batches[-1][2].last_offset + 1
        yield batches
