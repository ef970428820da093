import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME, iterate_batches, read_header, write_crc
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.records.iteration import iterate_records
from ottla.spark.columns import COLUMN_TYPES, Columns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
FULL = pa.schema(list(FIELDS.items()))
EVERYTHING = {"start": 0, "end": 2**62}

some_bytes = st.none() | st.binary(max_size=300)
records_of_a_batch = st.lists(
    st.tuples(
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3),
        st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=20,
)


def build(records, *, codec=0, base_offset=0):
    builder = BatchBuilder()
    for key, value, headers, timestamp_ms in records:
        builder.append(key, value, headers, timestamp_ms=timestamp_ms)
    return bytes(builder.build(codec, base_offset=base_offset))


def rows_of(data, schema=FULL, *, topic="t", partition=0, **bounds):
    columns = Columns(schema)
    for at, header in iterate_batches(data):
        columns.add(topic, partition, data, at, header, **(bounds or EVERYTHING))
    return columns.take()


def expected(data, *, start=0, end=2**62):
    return [record for at, _ in iterate_batches(data) for record in iterate_records(data, at) if start <= record.offset < end]


@given(st.lists(st.tuples(records_of_a_batch, st.sampled_from(list(Codec))), min_size=1, max_size=4), st.data())
def test_columns_say_of_random_batches_what_iterating_their_records_says(batches, data):
    base_offset = data.draw(st.integers(0, 2**40))
    stored = b""
    for records, codec in batches:
        stored += build(records, codec=codec, base_offset=base_offset)
        base_offset += len(records) + data.draw(st.integers(0, 5))
    first = read_header(stored).base_offset
    start = data.draw(st.integers(first - 1, base_offset + 1))
    end = data.draw(st.integers(start, base_offset + 1))
    rows = rows_of(stored, start=start, end=end)
    records = expected(stored, start=start, end=end)
    assert rows.schema == FULL
    assert rows.column("key").to_pylist() == [record.key for record in records]
    assert rows.column("value").to_pylist() == [record.value for record in records]
    assert rows.column("offset").to_pylist() == [record.offset for record in records]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [record.timestamp_ms * 1000 for record in records]
    assert [tuple((h["key"], h["value"]) for h in row) for row in rows.column("headers").to_pylist()] == [r.headers for r in records]
    assert set(rows.column("topic").to_pylist()) <= {"t"}
    assert set(rows.column("timestampType").to_pylist()) <= {0}


@given(records_of_a_batch, st.sets(st.sampled_from(list(FIELDS)), min_size=1))
def test_a_narrower_schema_has_the_same_columns_and_no_others(records, names):
    data = build(records)
    schema = pa.schema([(name, FIELDS[name]) for name in names])
    whole, narrow = rows_of(data), rows_of(data, schema)
    assert narrow.schema == schema
    for name in names:
        assert narrow.column(name).equals(whole.column(name))


@given(records_of_a_batch, st.data())
def test_only_a_decode_error_escapes_from_damaged_records(records, data):
    damaged = bytearray(build(records))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(HEADER_SIZE, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        rows_of(bytes(damaged))
    except DecodeError:
        pass


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_records_that_end_early_are_a_decode_error(cut):
    whole = bytearray(build([(b"key", b"x" * 100, [], 0)] * 3))
    short = whole[:-cut]
    short[8:12] = (len(short) - 12).to_bytes(4, "big")
    with pytest.raises(DecodeError):
        rows_of(bytes(short))


def test_a_record_that_is_shorter_than_it_says_is_a_decode_error():
    whole = bytearray(build([(b"key", b"value", [], 0)]))
    whole[HEADER_SIZE] += 2  # the length of the record, a zig-zag varint of one byte, says one more
    whole += b"\0"
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    with pytest.raises(DecodeError, match="a record ends at"):
        rows_of(bytes(whole))


def test_log_append_time_is_the_batchs_time_and_says_so():
    batch = bytearray(build([(b"k", b"v", [], 10), (b"k", b"v", [], 30)]))
    batch[22] |= LOG_APPEND_TIME
    write_crc(batch)
    rows = rows_of(bytes(batch))
    assert rows.column("timestampType").to_pylist() == [1, 1]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [30_000, 30_000]


def test_headers_are_empty_lists_and_never_null():
    rows = rows_of(build([(None, b"1", [], 0), (None, b"2", [("h", None)], 0)]) + build([(None, b"3", [], 0)], base_offset=2))
    assert rows.column("headers").null_count == 0
    assert rows.column("headers").to_pylist() == [[], [{"key": "h", "value": None}], []]


def test_rows_of_several_partitions_keep_their_topic_and_partition():
    columns = Columns(FULL)
    for topic, partition, count in [("a", 0, 2), ("b", 7, 1), ("a", 3, 2)]:
        data = build([(None, b"v", [], 0)] * count)
        columns.add(topic, partition, data, 0, read_header(data), **EVERYTHING)
    rows = columns.take()
    assert rows.column("topic").to_pylist() == ["a", "a", "b", "a", "a"]
    assert rows.column("partition").to_pylist() == [0, 0, 7, 3, 3]
    assert columns.row_count == 0
    assert columns.take().num_rows == 0


def test_columns_are_full_at_two_thousand_rows_and_later_at_ten_thousand_or_at_a_megabyte():
    small, large = Columns(FULL), Columns(FULL)
    data = build([(None, b"", [], 0)] * 1_000)
    counts: list[int] = []
    while len(counts) < 5:
        small.add("t", 0, data, 0, read_header(data), **EVERYTHING)
        if small.is_full:
            counts.append(small.take().num_rows)
    assert counts == [2_000, 4_000, 8_000, 10_000, 10_000], "Spark works at the first ones while others are made"
    data = build([(None, bytes(1 << 20), [], 0)])
    large.add("t", 0, data, 0, read_header(data), **EVERYTHING)
    assert large.is_full


def test_each_column_of_sparks_connector_is_there():
    assert list(COLUMN_TYPES) == list(FIELDS)


def test_large_and_small_numbers_survive_their_varints():
    chance = random.Random(7)
    records: list = [(bytes(chance.randrange(200)), bytes(chance.randrange(70_000)), [], chance.randrange(2**40)) for _ in range(40)]
    data = build(records)
    assert rows_of(data).column("value").to_pylist() == [record.value for record in expected(data)]


@pytest.mark.parametrize("field", ["base_offset", "base_timestamp"])
def test_numbers_that_leave_64_bits_are_a_decode_error(field):
    batch = bytearray(build([(b"k", b"v", [], 0), (b"k", b"v", [], 1)]))
    at = {"base_offset": 0, "base_timestamp": 27}[field]
    batch[at : at + 8] = (2**63 - 1).to_bytes(8, "big")
    with pytest.raises(DecodeError):
        rows_of(bytes(batch), start=0, end=2**64)


@pytest.mark.parametrize("time_ms", [2**62, (2**63 - 1) // 1000 + 1])
def test_a_time_that_spark_cannot_have_is_named_with_its_record(time_ms):
    data = build([(b"k", b"v", [], 0), (b"k", b"v", [], time_ms)], base_offset=7)
    with pytest.raises(DecodeError, match=f"column timestamp: the record of t-3 at offset 8 has a time of {time_ms} ms"):
        rows_of(data, partition=3)
    assert rows_of(data, pa.schema([("value", pa.binary())])).num_rows == 2
    [_, last] = (
        rows_of(build([(b"k", b"v", [], 0), (b"k", b"v", [], (2**63 - 1) // 1000)])).column("timestamp").cast(pa.int64()).to_pylist()
    )
    assert last == (2**63 - 1) // 1000 * 1000
