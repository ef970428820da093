"""The header of a record batch v2, and what a broker does with it alone.

A batch travels as bytes: it is checked by its header and its CRC, stamped in place, and written. Base offset, length and
leader epoch are before the CRC and are not covered by it, so a leader sets them without touching the checksum; attributes
and everything after them are covered.

======  =====================  ==========================================================================
byte    field                  meaning
======  =====================  ==========================================================================
0       base_offset            offset of the first record
8       batch_length           bytes after this field: the whole size less 12
12      leader_epoch           of the leader that appended the batch
16      magic                  2
17      crc                    CRC-32C of everything from byte 21 on
21      attributes             codec (bits 0-2), timestamp type (3), transactional (4), control (5), delete horizon (6)
23      last_offset_delta      offset of the last record less base_offset; stays when compaction removes records
27      base_timestamp         of the first record, or the delete horizon
35      max_timestamp          of all records
43      producer_id            -1 without idempotence
51      producer_epoch
53      base_sequence          of the first record
57      count                  of records
======  =====================  ==========================================================================

Source: KIP-98, KIP-534 (delete horizon), Kafka's documentation of the message format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.ports import Buffer
from ottla.records.crc import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12  # bytes that batch_length does not count
CRC_START: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
CODEC_MAX: Final = 4
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
_NOT_FROM_CLIENTS: Final = ~(CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL)  # what only brokers set, and bits without a meaning

SEQUENCE_MAX: Final = 2**31 - 1
_PREFIX: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_UP_TO_MAGIC: Final = struct.Struct(">qiib")
_MESSAGE_LENGTH_MIN: Final = 14  # of the oldest messages: what is shorter than that is of no magic
_ATTRIBUTES: Final = struct.Struct(">h")
_LONG: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_CRC_AT: Final = 17


class BatchHeader(msgspec.Struct, gc=False):
    """The fields that ``HEADER`` unpacks, in order. ``last_offset`` is inclusive. Hot paths unpack the plain tuple instead."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; it wraps to 0 after 2**31 - 1. -1 without a producer id."""
        return -1 if self.base_sequence < 0 else add_to_sequence(self.base_sequence, self.last_offset_delta)


def add_to_sequence(sequence: int, increment: int) -> int:
    """Adds to a sequence number: they run from 0 to 2**31 - 1 and then start again at 0."""
    return (sequence + increment) & SEQUENCE_MAX


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header at ``position``. DecodeError when it is incomplete, or plainly not of a v2 batch."""
    if position < 0 or len(data) - position < HEADER_SIZE:
        raise DecodeError(f"a batch header has {HEADER_SIZE} bytes, {len(data) - position} are left at byte {position}")
    header = BatchHeader(*HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise DecodeError(f"the batch at byte {position} has magic {header.magic}; only {MAGIC} is known")
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise DecodeError(f"the batch at byte {position} has length {header.batch_length}, shorter than its header")
    if header.last_offset_delta < 0 or header.base_offset < 0:
        raise DecodeError(f"the batch at byte {position} has offsets {header.base_offset} + {header.last_offset_delta}")
    return header


def has_valid_crc(data: Buffer, position: int, header: BatchHeader) -> bool:
    """True when the whole batch is there and its CRC fits."""
    end = position + header.size_bytes
    return end <= len(data) and crc32c(memoryview(data)[position + CRC_START : end]) == header.crc


def iterate_batches(data: Buffer, position: int = 0, *, check_crc: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yields ``(position, header)`` of every complete batch; a batch cut off by the end of the data ends the walk silently.

    DecodeError where bytes are not a batch, and with ``check_crc`` where a checksum is wrong.
    """
    end = len(data)
    while end - position >= HEADER_SIZE:
        header = read_header(data, position)
        if position + header.size_bytes > end:
            return
        if check_crc and not has_valid_crc(data, position, header):
            raise DecodeError(f"the batch at byte {position} (offset {header.base_offset}) fails its CRC")
        yield position, header
        position += header.size_bytes


def check_batch(view: memoryview, *, from_client: bool = True) -> tuple[int, ...]:
    """Returns the header's 13 numbers, when ``view`` is exactly one good batch; by header and CRC only, records are not opened.

    ``from_client`` adds what only clients must keep: base offset 0, no attribute that only brokers set. Errors:
    what ``check_is_one`` raises, CORRUPT_MESSAGE (CRC), INVALID_RECORD (counts, sequences, control, attributes), UNKNOWN_SERVER_ERROR
    (codec, as Kafka answers).
    """
    size = len(view)
    if size < HEADER_SIZE:
        check_is_one(view)  # it is none
    header = HEADER.unpack_from(view)
    base_offset, length, _, magic, crc, attributes, delta, _, _, producer_id, epoch, sequence, count = header
    if (
        length + LENGTH_OVERHEAD != size
        or magic != MAGIC
        or crc32c(view[CRC_START:]) != crc
        or count != delta + 1
        or count < 1
        or attributes & CODEC_MASK > CODEC_MAX
        or (producer_id >= 0 and (sequence < 0 or epoch < 0) and not attributes & CONTROL)
        or (from_client and (base_offset or attributes & _NOT_FROM_CLIENTS))
    ):
        _refuse(view, header, from_client=from_client)
    return header


def check_is_one(view: memoryview) -> None:
    """Returns where these bytes are one batch by their length and magic; a few bytes are looked at, however many there are.

    INVALID_RECORD where they are another number of batches, none of which is complete or of this magic; CORRUPT_MESSAGE for what no message
    of any magic is.
    """
    size, corrupt, invalid = len(view), ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
    if size < _UP_TO_MAGIC.size:
        raise KafkaError(invalid, f"{size} bytes are not a record batch; its header alone has {HEADER_SIZE}")
    _, length, _, magic = _UP_TO_MAGIC.unpack_from(view)
    if length < _MESSAGE_LENGTH_MIN:
        raise KafkaError(corrupt, f"the batch declares {length} + {LENGTH_OVERHEAD} bytes, {size} came")
    if not 0 <= magic <= MAGIC:
        raise KafkaError(corrupt, f"the batch has magic {magic}; only record batches of magic {MAGIC} are taken")
    if length + LENGTH_OVERHEAD > size:
        raise KafkaError(invalid, f"the batch declares {length} + {LENGTH_OVERHEAD} bytes, {size} came")
    if magic != MAGIC:
        raise KafkaError(invalid, f"the batch has magic {magic}; only record batches of magic {MAGIC} are taken")
    if length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise KafkaError(corrupt, f"the batch declares {length} + {LENGTH_OVERHEAD} bytes; its header alone has {HEADER_SIZE}")
    if length + LENGTH_OVERHEAD < size:
        raise KafkaError(invalid, "a partition's records must be exactly one batch")


def _refuse(view: memoryview, header: tuple[int, ...], *, from_client: bool) -> NoReturn:
    """Raises what is wrong, the first thing first."""
    fields = BatchHeader(*header)
    invalid = ErrorCode.INVALID_RECORD
    check_is_one(view)
    if crc32c(view[CRC_START:]) != fields.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch fails its CRC, which says {fields.crc:#010x}")
    if fields.count < 1 or fields.count != fields.last_offset_delta + 1:
        raise KafkaError(invalid, f"the batch counts {fields.count} records, its last offset delta is {fields.last_offset_delta}")
    if fields.attributes & CODEC_MASK > CODEC_MAX:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression codec {fields.attributes & CODEC_MASK} is unknown")
    if from_client and fields.attributes & CONTROL:
        raise KafkaError(invalid, "a client may not write control batches")
    if from_client and fields.attributes & _NOT_FROM_CLIENTS:
        raise KafkaError(invalid, f"the batch has attributes {fields.attributes & 0xFFFF:#06x}; those are not a client's to set")
    if from_client and fields.base_offset:
        raise KafkaError(invalid, f"a client's batch has base offset 0, not {fields.base_offset}")
    raise KafkaError(
        invalid, f"producer {fields.producer_id} sent epoch {fields.producer_epoch} and sequence {fields.base_sequence}; both begin at 0"
    )


def stamp(view: memoryview | bytearray, *, base_offset: int, leader_epoch: int) -> None:
    """Writes the batch's place in the log. The CRC does not cover these bytes and stays."""
    _PREFIX.pack_into(view, 0, base_offset, len(view) - LENGTH_OVERHEAD, leader_epoch)


def stamp_log_append_time(view: memoryview | bytearray, *, now_ms: int) -> None:
    """Gives all records of the batch the time ``now_ms``; the CRC is recomputed."""
    (attributes,) = _ATTRIBUTES.unpack_from(view, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(view, _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _LONG.pack_into(view, _MAX_TIMESTAMP_AT, now_ms)
    write_crc(view)


def set_max_timestamp(view: memoryview | bytearray, timestamp_ms: int) -> None:
    """Writes this as the largest time into the header, and the CRC again."""
    _LONG.pack_into(view, _MAX_TIMESTAMP_AT, timestamp_ms)
    write_crc(view)


def write_crc(view: memoryview | bytearray) -> None:
    """Writes the CRC of the bytes as they are."""
    _CRC.pack_into(view, _CRC_AT, crc32c(memoryview(view)[CRC_START:]))
