"""Reading a log through, from a place to its end: for machines and images that are rebuilt from their records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

from ottla.records.batch import iterate_batches
from ottla.records.iteration import Record, walk_records
from ottla.storage.log.partition_log import PartitionLog

_READ_BYTES: Final = 1 << 18
"""Read and handed out before the caller may let others have their turn: some milliseconds."""


async def records_between(log: PartitionLog, offset: int, end_offset: int, *, check_crc: bool = False) -> AsyncIterator[list[Record]]:
    """The records of a read at a time, without control batches. DecodeError for what is no batch; StorageError as ``PartitionLog.read``."""
    async for batches in _reads(log, offset, end_offset, check_crc=check_crc):
        yield [record for batch in batches for record in batch if record.offset >= offset]


async def batches_between(log: PartitionLog, offset: int, end_offset: int) -> AsyncIterator[Iterator[Record]]:
    """As ``records_between``, the records of a batch at a time: its records are made some at a time, as the iterator comes to them."""
    async for batches in _reads(log, offset, end_offset, check_crc=False):
        for batch in batches:
            yield (record for record in batch if record.offset >= offset)


async def _reads(log: PartitionLog, offset: int, end_offset: int, *, check_crc: bool) -> AsyncIterator[list[Iterator[Record]]]:
    while offset < end_offset:
        part = await log.read(offset, max_bytes=_READ_BYTES, end_offset=end_offset)
        assert part is not None, "offsets below the end can be read"
        data = part.region.read()
        batches = []
        for position, header in iterate_batches(data, check_crc=check_crc):
            if not header.is_control:
                batches.append(walk_records(data, position))
            offset = header.last_offset + 1
        yield batches
