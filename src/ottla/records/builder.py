"""Records to a batch."""

from __future__ import annotations

from collections.abc import Sequence

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
from ottla.records.kernel import encode_columns, encode_record
from ottla.types import Headers


class BatchBuilder:
    """Gathers records of one partition; the first one's time is the batch's base timestamp."""

    __slots__ = ("_base_timestamp", "_count", "_max_timestamp", "_records")

    def __init__(self) -> None:
        self._records = bytearray()
        self._count = 0
        self._base_timestamp = -1
        self._max_timestamp = -1

    def append(self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = (), *, timestamp_ms: int) -> int:
        """Appends the record. Returns the bytes of the batch so far, as they are without compression."""
        self._reach(timestamp_ms)
        self._records += encode_record(timestamp_ms - self._base_timestamp, self._count, key, value, headers)
        self._count += 1
        return HEADER_SIZE + len(self._records)

    def extend(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[Headers] | None = None,
        *,
        start: int,
        end: int,
        timestamp_ms: int,
        size_max: int,
    ) -> int:
        """Appends rows from ``start`` on, at least one. Returns the index of the first row that is not appended.

        Stops before row ``end``, or after the row that brings the batch to ``size_max`` bytes; the batch must be smaller on entry.
        ``headers`` is None if no row has headers.
        """
        assert start < end, "there is a row"
        assert self.size_bytes < size_max, "there is room for it"
        self._reach(timestamp_ms)
        encoded, reached = encode_columns(
            keys,
            values,
            headers,
            start=start,
            end=end,
            time_delta=timestamp_ms - self._base_timestamp,
            offset_delta=self._count,
            size_max=size_max - self.size_bytes,
        )
        self._records += encoded
        self._count += reached - start
        return reached

    def _reach(self, timestamp_ms: int) -> None:
        if self._count == 0:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms

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
        """Builds the complete batch; the builder can be used again."""
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


def rebuild_batch(header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None) -> bytearray:
    """Builds the batch with only these of its records; its offsets, epochs, producer and codec stay.

    Without records it is a header alone, which still says what its producer's last sequence and offset were.
    ``delete_horizon_ms`` takes the place of the base timestamp and is marked in the attributes (KIP-534); one that is there stays.
    """
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON, delete_horizon_ms
    payload = bytearray()
    for record in records:
        payload += encode_record(
            record.timestamp_ms - base_timestamp, record.offset - header.base_offset, record.key, record.value, record.headers
        )
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
