"""Record batches as they lie in a broker's log directory, read without the code under test.

The first 61 bytes of a batch: base offset, remaining length, leader epoch, magic, CRC, attributes, last offset delta,
two timestamps, producer id, epoch and sequence, record count. Source: Kafka's documentation, "Record Batch".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_END = 12
CODEC_MASK = 0b111
CODEC_NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


@dataclass(frozen=True, slots=True)
class StoredBatch:
    base_offset: int
    codec: str
    record_count: int
    producer_id: int
    data: bytes


def stored_batches(partition_directory: Path) -> Iterator[StoredBatch]:
    """All batches of a partition, in the order of their segments."""
    for segment in sorted(partition_directory.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at + HEADER.size <= len(data):
            fields = HEADER.unpack_from(data, at)
            end = at + LENGTH_END + fields[1]
            if fields[1] <= 0 or end > len(data):
                return
            yield StoredBatch(fields[0], CODEC_NAMES[fields[5] & CODEC_MASK], fields[12], fields[9], data[at:end])
            at = end
