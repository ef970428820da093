"""What is in the files of a log, described: for ``ottla dump-log``. Bytes in, descriptions out.

Damage is described, not raised: a dump is what one looks at when something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ottla.errors import DecodeError
from ottla.ports import Buffer
from ottla.records.batch import BatchHeader, has_valid_crc, read_header
from ottla.records.compression import Codec
from ottla.records.control import ControlType, control_type_of
from ottla.records.iteration import Record, iterate_records
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex
from ottla.storage.segment.transaction_index import Transaction, from_bytes

__all__ = ["BatchDump", "Damage", "dump_log", "dump_offset_index", "dump_time_index", "dump_transaction_index"]


class BatchDump(msgspec.Struct, gc=False, kw_only=True):
    """One batch; ``records`` is empty unless they were asked for."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    timestamp_type: str
    compression: str
    is_transactional: bool
    is_control: bool
    control_type: str | None
    crc: int
    is_valid: bool
    records: list[Record]


class Damage(msgspec.Struct, gc=False):
    """A damaged end: from ``position`` on the file holds no batches."""

    position: int
    size_bytes: int
    reason: str


def dump_log(data: Buffer, *, with_records: bool = False) -> Iterator[BatchDump | Damage]:
    """Yields the batches of a segment's ``.log`` file; where they end before the file does, what is wrong there."""
    position, end = 0, len(data)
    while position < end:
        try:
            header = read_header(data, position)
        except DecodeError as error:
            yield Damage(position, end - position, error.message)
            return
        if position + header.size_bytes > end:
            yield Damage(position, end - position, f"the batch declares {header.size_bytes} bytes, {end - position} are left")
            return
        is_valid = has_valid_crc(data, position, header)
        try:
            yield _describe(data, position, header, is_valid=is_valid, with_records=with_records)
        except DecodeError as error:
            yield Damage(position, header.size_bytes, error.message)
        position += header.size_bytes


def dump_offset_index(data: Buffer, base_offset: int, *, log_size: int) -> list[tuple[int, int]]:
    """Returns ``(offset, position)`` of every entry of an ``.index`` file. DecodeError when it cannot be one."""
    return OffsetIndex.from_bytes(data, base_offset, log_size=log_size).entries


def dump_time_index(data: Buffer, base_offset: int) -> list[tuple[int, int]]:
    """Returns ``(timestamp, offset)`` of every entry of a ``.timeindex`` file. DecodeError when it cannot be one."""
    return TimeIndex.from_bytes(data, base_offset).entries


def dump_transaction_index(data: Buffer) -> list[Transaction]:
    """Returns every entry of a ``.txnindex`` file. DecodeError when it cannot be one."""
    return from_bytes(data)


def _describe(data: Buffer, position: int, header: BatchHeader, *, is_valid: bool, with_records: bool) -> BatchDump:
    records = iterate_records(data, position) if with_records or (header.is_control and is_valid) else []
    return BatchDump(
        position=position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        count=header.count,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        leader_epoch=header.leader_epoch,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        timestamp_type="LogAppendTime" if header.is_log_append_time else "CreateTime",
        compression=_codec_name(header.codec),
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        control_type=_control_name(records[0]) if header.is_control and records else None,
        crc=header.crc,
        is_valid=is_valid,
        records=records if with_records else [],
    )


def _codec_name(codec: int) -> str:
    return Codec(codec).name.lower() if codec in list(Codec) else f"codec {codec}"


def _control_name(record: Record) -> str:
    number = control_type_of(record)
    return ControlType(number).name.lower() if number in list(ControlType) else f"type {number}"
