"""A batch that its topic does not take, in two: ``max.message.bytes`` of a topic may be below what a batch is filled to.

The halves carry on with the sequence of the whole, of which the broker has kept nothing; so the batches after it stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.records.batch import BatchHeader, add_to_sequence, read_header
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record, iterate_records


class Half(NamedTuple):
    batch: bytearray
    size_bytes: int  # without compression


def halves(batch: bytearray) -> tuple[Half, Half] | None:
    """Returns the first and the second half of its records as batches; None when it has but one."""
    header = read_header(batch, 0)
    if header.count < 2:
        return None
    records = iterate_records(batch)
    middle = header.count // 2
    return _half_of(records[:middle], header, 0), _half_of(records[middle:], header, middle)


def _half_of(records: Sequence[Record], header: BatchHeader, first: int) -> Half:
    builder = BatchBuilder()
    for record in records:
        builder.append(record.key, record.value, record.headers, timestamp_ms=record.timestamp_ms)
    sequence = add_to_sequence(header.base_sequence, first)
    batch = builder.build(header.codec, producer_id=header.producer_id, producer_epoch=header.producer_epoch, base_sequence=sequence)
    return Half(batch, builder.size_bytes)
