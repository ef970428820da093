"""The header of a batch: checked, stamped, walked."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    add_to_sequence,
    check_batch,
    has_valid_crc,
    iterate_batches,
    read_header,
    stamp,
    stamp_log_append_time,
    write_crc,
)
from ottla.records.builder import BatchBuilder
from ottla.records.crc import crc32c
from ottla.records.iteration import iterate_records


def batch_of(count: int = 3, **arguments: Any) -> bytearray:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(b"key", b"value %d" % index, timestamp_ms=1000 + index)
    return builder.build(**arguments)


def changed(batch: bytearray | memoryview, at: int, form: str, value: int, *, with_crc: bool = True) -> memoryview:
    twin = bytearray(batch)
    struct.pack_into(form, twin, at, value)
    if with_crc:
        write_crc(twin)
    return memoryview(twin)


def code_of(view: memoryview, **arguments: bool) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_batch(view, **arguments)
    return caught.value.code


def test_the_checksum_is_crc32c_and_can_be_continued() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the CRC catalogue
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert crc32c(memoryview(bytearray(b"123456789"))) == 0xE3069283


def test_a_good_batch_passes() -> None:
    header = check_batch(memoryview(batch_of(producer_id=7, producer_epoch=0, base_sequence=5)))
    assert header[9:] == (7, 0, 5, 3)


def test_every_flipped_bit_after_the_leader_epoch_is_found() -> None:
    batch = batch_of()
    for position in range(16, len(batch)):
        for bit in range(8):
            twin = bytearray(batch)
            twin[position] ^= 1 << bit
            assert code_of(memoryview(twin)) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_each_fault_has_its_code() -> None:
    batch = batch_of()
    for size in (1, 12, 17, 60, len(batch) - 1):
        assert code_of(memoryview(batch)[:size]) == ErrorCode.INVALID_RECORD, f"{size} bytes are no complete batch"
    assert code_of(changed(batch, 8, ">i", -5)) == ErrorCode.CORRUPT_MESSAGE
    assert code_of(changed(batch, 17, ">I", 1, with_crc=False)) == ErrorCode.CORRUPT_MESSAGE
    assert code_of(changed(batch, 8, ">i", 13)) == ErrorCode.CORRUPT_MESSAGE
    assert code_of(changed(batch, 8, ">i", 20)) == ErrorCode.CORRUPT_MESSAGE, "a message of another magic, but no batch"
    for magic in (-1, 3):
        assert code_of(changed(batch, 16, ">b", magic)) == ErrorCode.CORRUPT_MESSAGE, f"magic {magic}"
    for magic in (0, 1):
        assert code_of(changed(batch, 16, ">b", magic)) == ErrorCode.INVALID_RECORD, f"magic {magic}"
    assert code_of(changed(batch, 57, ">i", 2)) == ErrorCode.INVALID_RECORD
    assert code_of(changed(changed(batch, 57, ">i", 0), 23, ">i", -1)) == ErrorCode.INVALID_RECORD
    assert code_of(changed(batch, 21, ">h", 5)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert code_of(changed(batch, 43, ">q", 7)) == ErrorCode.INVALID_RECORD  # an id without a sequence
    assert code_of(memoryview(batch + batch)) == ErrorCode.INVALID_RECORD


def test_only_brokers_write_control_batches_and_choose_offsets() -> None:
    control = changed(batch_of(1), 21, ">h", CONTROL)
    assert code_of(control) == ErrorCode.INVALID_RECORD
    check_batch(control, from_client=False)
    later = changed(batch_of(), 0, ">q", 12)
    assert code_of(later) == ErrorCode.INVALID_RECORD
    check_batch(later, from_client=False)


def test_a_stamp_changes_offset_and_epoch_and_nothing_else() -> None:
    batch = batch_of()
    twin = bytearray(batch)
    stamp(memoryview(twin), base_offset=2**40, leader_epoch=17)
    header = read_header(twin)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (2**40, 2**40 + 2, 17)
    assert twin[8:12] == batch[8:12]
    assert twin[16:] == batch[16:]
    assert has_valid_crc(twin, 0, header)


def test_log_append_time_overrides_every_records_time_and_keeps_the_crc_right() -> None:
    batch = batch_of()
    stamp_log_append_time(memoryview(batch), now_ms=99_999)
    header = read_header(batch)
    assert header.attributes & LOG_APPEND_TIME
    assert has_valid_crc(batch, 0, header)
    assert {record.timestamp_ms for record in iterate_records(batch)} == {99_999}


def test_a_walk_ends_silently_at_a_cut_batch_and_loudly_at_a_wrong_one() -> None:
    first, second = batch_of(2), batch_of(3, base_offset=2)
    data = bytes(first + second)
    for end in range(len(data) + 1):
        whole = (0 if end < len(first) else 1) + (end == len(data))
        assert len(list(iterate_batches(data[:end]))) == whole
    assert [(position, header.base_offset) for position, header in iterate_batches(data)] == [(0, 0), (len(first), 2)]
    broken = bytearray(data)
    broken[-1] ^= 1
    assert len(list(iterate_batches(broken))) == 2
    with pytest.raises(DecodeError):
        list(iterate_batches(broken, check_crc=True))
    broken[len(first) + 16] = 9
    with pytest.raises(DecodeError):
        list(iterate_batches(broken))


def test_sequences_wrap_to_zero() -> None:
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 2, 4) == 2
    assert read_header(batch_of(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)).last_sequence == 0


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_what_they_should(data: bytes) -> None:
    for call in (lambda: check_batch(memoryview(data)), lambda: read_header(data), lambda: list(iterate_batches(data, check_crc=True))):
        try:
            call()
        except KafkaError:
            pass


@given(st.binary(min_size=HEADER_SIZE, max_size=300), st.booleans())
def test_random_headers_raise_only_what_they_should(data: bytes, with_crc: bool) -> None:
    batch = bytearray(data)
    batch[16] = 2
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    if with_crc:
        write_crc(batch)
    try:
        check_batch(memoryview(batch))
    except KafkaError:
        pass
    try:
        iterate_records(batch)
    except DecodeError:
        pass
