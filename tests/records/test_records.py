"""Records to a batch and back, and checked against kafka-python and aiokafka in both directions."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import has_gzip, has_lz4, has_snappy, has_zstd
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from ottla.errors import DecodeError
from ottla.records import kernel
from ottla.records.batch import check_batch, read_header, write_crc
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.records.control import ControlType, EndMarker, build_end_marker, control_type_of, end_marker_of
from ottla.records.iteration import Record, iterate_records
from ottla.records.plain_kernel import GARBAGE, MISCOUNTED, varint

CODECS = list(Codec)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
records = st.lists(
    st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=300), headers, st.integers(-1, 2**42)),
    min_size=1, max_size=20,
)  # fmt: skip
Content = list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]]


def build(content: Content, codec: int = 0, **arguments: Any) -> bytearray:
    builder = BatchBuilder()
    for key, value, record_headers, timestamp_ms in content:
        builder.append(key, value, record_headers, timestamp_ms=timestamp_ms)
    return builder.build(codec, **arguments)


def content_of(found: list[Record]) -> Content:
    return [(record.key, record.value, record.headers, record.timestamp_ms) for record in found]


@given(records, st.sampled_from(CODECS), st.integers(0, 2**50))
def test_mechanism_81_what_is_built_is_read_back(content: Content, codec: Codec, base_offset: int) -> None:
    batch = build(content, codec, base_offset=base_offset)
    found = iterate_records(batch)
    assert content_of(found) == content
    assert [record.offset for record in found] == list(range(base_offset, base_offset + len(content)))
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (content[0][3], max(record[3] for record in content))
    check_batch(memoryview(batch), from_client=False)


SAMPLE: Content = [
    (b"key", b"value" * 15_000, (("h", b"1"), ("null", None)), 1_700_000_000_000),
    (None, None, (), 1_700_000_000_500),
    (b"", b"", (), 1_699_999_999_000),
]
# kafka-python brings no codecs of its own: it has those whose packages are there. aiokafka has all of them through cramjam.
KAFKA_PYTHON_CODECS = [codec for codec, has in zip(CODECS, [lambda: True, has_gzip, has_snappy, has_lz4, has_zstd]) if has()]


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_reads_what_we_build(codec: Codec) -> None:
    batch = build(SAMPLE, codec, base_offset=40, producer_id=9, producer_epoch=2, base_sequence=77)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 2, 77)
    found = [(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs]
    assert found == [(40 + index, time, key, value, head) for index, (key, value, head, time) in enumerate(SAMPLE)]


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_we_build(codec: Codec) -> None:
    theirs = AioMemoryRecords(bytes(build(SAMPLE, codec, base_offset=40))).next_batch()
    assert theirs.validate_crc()
    found = [(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs]
    assert found == [(40 + index, time, key, value, head) for index, (key, value, head, time) in enumerate(SAMPLE)]


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_mechanism_81_we_read_what_kafka_python_builds(codec: Codec) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 20)
    for key, value, head, time in SAMPLE:
        builder.append(timestamp=time, key=key, value=value, headers=list(head))
    builder.close()
    batch = bytearray(builder.buffer())
    check_batch(memoryview(batch))
    assert content_of(iterate_records(batch)) == SAMPLE


@pytest.mark.parametrize("codec", CODECS)
def test_mechanism_81_we_read_what_aiokafka_builds(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), is_transactional=0, producer_id=9, producer_epoch=1, base_sequence=4, batch_size=1 << 20
    )
    for index, (key, value, head, time) in enumerate(SAMPLE):
        builder.append(index, timestamp=time, key=key, value=value, headers=list(head))
    batch = bytearray(builder.build())
    assert check_batch(memoryview(batch))[9:] == (9, 1, 4, 3)
    assert content_of(iterate_records(batch)) == SAMPLE


def test_without_compression_the_bytes_are_those_of_kafka_python() -> None:
    theirs = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
    ours = BatchBuilder()
    for index in range(300):
        key, value, head = b"%d" % index, b"x" * index * 3, [("n", b"%d" % index)] * (index % 3)
        theirs.append(timestamp=10_000 - index, key=key, value=value, headers=head)
        ours.append(key, value, head, timestamp_ms=10_000 - index)
    theirs.close()
    expected = bytearray(theirs.buffer())
    expected[12:16] = b"\xff" * 4  # the leader epoch, which a client may fill as it likes
    assert ours.build() == expected


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (4096, "8040"), (-(2**63), "ff" * 9 + "01")]
)
def test_varints_are_zig_zag(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


def test_the_builder_reports_its_size_without_compression() -> None:
    builder = BatchBuilder()
    size = 0
    for index in range(500):
        size = builder.append(b"k" * index, b"v", timestamp_ms=index)
    assert size == builder.size_bytes == len(builder.build())


def with_payload(payload: bytes, count: int) -> bytearray:
    batch = build([(None, b"", (), 0)] * count)[:61] + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch)
    return batch


START = b"\x00\x00\x00"  # attributes, time and offset
CONTENT = varint(-1) + varint(1) + b"v"  # no key, and a value
RECORD = varint(7) + START + CONTENT + b"\x00"


def test_the_hand_made_record_is_good() -> None:
    assert [record.value for record in iterate_records(with_payload(RECORD, 1))] == [b"v"]


@pytest.mark.parametrize(
    ("what", "payload"),
    [
        ("nothing", b""),
        ("half a record", RECORD[:4]),
        ("bytes after the last record", RECORD + b"\x00"),
        ("a record longer than the batch", varint(100) + RECORD[1:]),
        ("a record of no bytes", varint(0)),
        ("a record of negative length", varint(-5) + RECORD[1:]),
        ("a length that is one too small", varint(6) + RECORD[1:]),
        ("a key longer than the record", varint(7) + START + varint(50) + RECORD[5:]),
        ("a key of length -2", varint(7) + START + varint(-2) + RECORD[5:]),
        ("an offset outside the batch", varint(7) + b"\x00\x00\x02" + RECORD[4:]),
        ("a varint without end", b"\xff" * 40),
        ("a length of 70 bits", b"\xff" * 9 + b"\x7f" + RECORD),
        ("a time of 70 bits", varint(16) + b"\x00" + b"\xff" * 9 + b"\x7f" + RECORD[3:]),
        ("a million headers", varint(9) + START + CONTENT + varint(1_000_000)),
        ("a negative number of headers", varint(7) + START + CONTENT + varint(-1)),
        ("a header without a key", varint(9) + START + CONTENT + varint(1) + varint(-1) + varint(-1)),
    ],
)  # fmt: skip
def test_a_batch_with_false_fields_is_a_decode_error(what: str, payload: bytes) -> None:
    batch = with_payload(payload, 1)
    with pytest.raises(DecodeError):
        iterate_records(batch)
    assert kernel.check_records(payload, 0, 1, 0)[0] != len(payload), what


def test_a_header_key_that_is_not_text_is_taken_and_read_as_the_java_client_reads_it() -> None:
    """One record of a client whose header keys are bytes would keep readers from all that follow."""
    payload = varint(11) + START + CONTENT + varint(1) + varint(2) + b"\xffk" + varint(-1)
    assert kernel.check_records(payload, 0, 1, 0)[0] == len(payload)
    assert [record.headers for record in iterate_records(with_payload(payload, 1))] == [(("\N{REPLACEMENT CHARACTER}k", None),)]


@given(st.binary(max_size=120), st.integers(1, 5))
def test_random_payloads_raise_only_decode_errors(payload: bytes, count: int) -> None:
    try:
        iterate_records(with_payload(payload, count))
    except DecodeError:
        pass


@given(records, st.data())
def test_damaged_records_raise_only_decode_errors(content: Content, data: st.DataObject) -> None:
    batch = build(content)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        iterate_records(batch)
    except DecodeError:
        pass


def test_records_are_checked_as_they_are_numbered_timed_and_keyed() -> None:
    payload = bytes(build([(b"k", b"v", (), 7), (None, b"v", (), -2), (b"", None, (("h", None),), 5)]))[61:]
    base = 7  # of the first record
    assert kernel.check_records(payload, 0, 3, 0) == (len(payload), -2 - base, 0, 1)
    assert kernel.check_records(payload, 0, 4, 0)[0] == MISCOUNTED
    assert 0 < kernel.check_records(payload, 0, 2, 0)[0] < len(payload)
    assert kernel.check_records(payload, 0, 3, 1)[0] == MISCOUNTED
    assert kernel.check_records(RECORD + RECORD, 0, 2, 0)[0] == MISCOUNTED, "both are number 0"
    assert kernel.check_records(b"\xff" * 12, 0, 1, 0)[0] == GARBAGE


@given(records)
def test_whatever_is_built_passes_the_check(content: Content) -> None:
    batch = build(content)
    payload = bytes(batch[61:])
    assert kernel.check_records(payload, 0, len(content), 0)[0] == len(payload)
    assert kernel.check_records(payload, 0, len(content), 0)[3] == sum(key is None for key, *_ in content)


@given(st.binary(max_size=80), st.integers(1, 5))
def test_what_passes_the_check_can_be_read(payload: bytes, count: int) -> None:
    if kernel.check_records(payload, 0, count, 0)[0] != len(payload):
        return
    assert len(iterate_records(with_payload(payload, count))) == count


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_marker_is_recognised_and_kafka_python_agrees(is_commit: bool) -> None:
    batch = build_end_marker(is_commit=is_commit, producer_id=5, producer_epoch=3, coordinator_epoch=12, timestamp_ms=77)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    (record,) = iterate_records(batch)
    assert end_marker_of(record) == EndMarker(is_commit, 12)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs.is_control_batch
    (control,) = list(theirs)
    assert (control.commit, control.abort) == (is_commit, not is_commit)


def test_other_control_records_are_no_end_markers() -> None:
    leader_change = Record(0, 0, b"\x00\x00\x00\x02", b"")
    assert control_type_of(leader_change) == ControlType.LEADER_CHANGE
    assert end_marker_of(leader_change) is None
    for record in (Record(0, 0, None, b""), Record(0, 0, b"\x00", b""), Record(0, 0, b"\x00\x00\x00\x01", b"")):
        with pytest.raises(DecodeError):
            end_marker_of(record)
