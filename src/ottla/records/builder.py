"""Records to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    write_crc,
)  # fmt: skip
from ottla.records.compression import compress
from ottla.records.iteration import Record


class BatchBuilder:
    """Gathers records of one partition; the first one's time is the batch's base timestamp."""

    __slots__ = ("_base_timestamp", "_count", "_max_timestamp", "_records")

    def __init__(self) -> None:
        self._records = bytearray()
        self._count = 0
        self._base_timestamp = -1
        self._max_timestamp = -1

    def append(self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = (), *, timestamp_ms: int) -> int:
        """The record is in the batch; the bytes of the batch so far, as they are without compression."""
        count = self._count
        if count == 0:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        body = encode_record(timestamp_ms - self._base_timestamp, count, key, value, headers)
        self._records += varint(len(body))
        self._records += body
        self._count = count + 1
        return HEADER_SIZE + len(self._records)

    @property
    def count(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """The batch without compression."""
        return HEADER_SIZE + len(self._records)

    def build(
        self,
        codec: int = 0,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytearray:
        """The whole batch; the builder can go on after it."""
        assert self._count > 0, "a batch has at least one record"
        attributes = codec | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
        payload = compress(codec, self._records)
        batch = bytearray(HEADER_SIZE)
        batch += payload
        HEADER.pack_into(
            batch, 0, base_offset, len(batch) - LENGTH_OVERHEAD, leader_epoch, MAGIC, 0, attributes, self._count - 1,
            self._base_timestamp, self._max_timestamp, producer_id, producer_epoch, base_sequence, self._count,
        )  # fmt: skip
        write_crc(batch)
        return batch


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytearray:
    """The record without its length."""
    body = bytearray(1)  # attributes
    body += varint(timestamp_delta)
    body += varint(offset_delta)
    if key is None:
        body += _NULL
    else:
        body += varint(len(key))
        body += key
    if value is None:
        body += _NULL
    else:
        body += varint(len(value))
        body += value
    body += varint(len(headers))
    for name, content in headers:
        encoded = name.encode()
        body += varint(len(encoded))
        body += encoded
        body += _NULL if content is None else varint(len(content)) + content
    return body


def rebuild_batch(header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None) -> bytearray:
    """The batch with only these of its records; its offsets, epochs, producer and codec stay.

    Without records it is a header alone, which still says what its producer's last sequence and offset were.
    ``delete_horizon_ms`` takes the place of the base timestamp and is marked in the attributes (KIP-534); one that is there stays.
    """
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON, delete_horizon_ms
    payload = bytearray()
    for record in records:
        body = encode_record(
            record.timestamp_ms - base_timestamp, record.offset - header.base_offset, record.key, record.value, record.headers
        )
        payload += varint(len(body))
        payload += body
    if not records:
        # There is nothing that a codec could open, that has a time, or that a transaction could commit.
        attributes &= ~(CODEC_MASK | (0 if header.is_control else TRANSACTIONAL))
        base_timestamp = max_timestamp = -1
    elif not header.is_log_append_time:
        max_timestamp = max(record.timestamp_ms for record in records)
    batch = bytearray(HEADER_SIZE)
    batch += compress(attributes & CODEC_MASK, payload)
    HEADER.pack_into(
        batch, 0, header.base_offset, len(batch) - LENGTH_OVERHEAD, header.leader_epoch, MAGIC, 0, attributes, header.last_offset_delta,
        base_timestamp, max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence, len(records),
    )  # fmt: skip
    write_crc(batch)
    return batch


def _encode_varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SMALL: Final = [_encode_varint(value) for value in range(4096)]
_NULL: Final = _encode_varint(-1)


def varint(value: int) -> bytes:
    """A zig-zag varint."""
    return _SMALL[value] if 0 <= value < 4096 else _encode_varint(value)
