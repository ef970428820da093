"""Reading a log through, from a place to its end: for machines and images that are rebuilt from their records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from ottla.records.batch import iterate_batches
from ottla.records.iteration import Record, iterate_records
from ottla.storage.log.partition_log import PartitionLog

_READ_BYTES: Final = 1 << 18
"""Read and handed out before the caller may let others have their turn: some milliseconds."""


async def records_between(log: PartitionLog, offset: int, end_offset: int, *, check_crc: bool = False) -> AsyncIterator[list[Record]]:
    """The records of a read at a time, without control batches. DecodeError for what is no batch; StorageError as ``PartitionLog.read``."""
    while offset < end_offset:
        part = await log.read(offset, max_bytes=_READ_BYTES, end_offset=end_offset)
        assert part is not None, "offsets below the end can be read"
        data, first = part.region.read(), offset
        records: list[Record] = []
        for position, header in iterate_batches(data, check_crc=check_crc):
            if not header.is_control:
                records += [record for record in iterate_records(data, position) if record.offset >= first]
            offset = header.last_offset + 1
        yield records
