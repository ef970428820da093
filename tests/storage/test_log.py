"""The log of a partition: appending, rolling, reading."""

import hashlib
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.batches import DIRECTORY, append, batch, idempotent, log_bytes, open_log, read, records_of, stage

from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.records.batch import CONTROL, LOG_APPEND_TIME, read_header
from ottla.records.compression import Codec
from ottla.records.control import build_end_marker
from ottla.records.iteration import iterate_records
from ottla.sim.disk import VOLUME_BYTES
from ottla.sim.disk_faults import Fault
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.config import LogConfig
from ottla.storage.directory.reserved_disk import reserved
from ottla.storage.directory.room import Room
from ottla.storage.log.partition_log import PartitionLog

SIZE = len(batch())


def code_of(log: PartitionLog, view: memoryview, *, now_ms: int = 2000) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        stage(log, view, now_ms=now_ms)
    return caught.value.code


# -- appending


def test_mechanism_7_offsets_rise_without_gaps_and_stored_bytes_never_change() -> None:
    log = open_log(InstantDisk(), segment_bytes=5 * SIZE, index_interval_bytes=SIZE)
    expected, stored = 0, b""
    for round_ in range(30):
        for appended in append(log, batch(b"a", b"b"), batch(b"c")):
            assert appended.base_offset == expected
            expected = appended.last_offset + 1
        now = log_bytes(log)
        assert hashlib.sha256(now[: len(stored)]).digest() == hashlib.sha256(stored).digest()
        assert len(now) > len(stored)
        stored = now
        assert log.log_end_offset == expected == 3 * (round_ + 1)
    assert [record.offset for record in records_of(log)] == list(range(expected))


def test_what_is_staged_is_not_there_before_the_flush() -> None:
    log = open_log(InstantDisk())
    assert stage(log, batch(b"a", b"b")).last_offset == 1
    assert stage(log, batch()).base_offset == 2
    assert log.tail.has_pending
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    assert run(log.read(0, max_bytes=100, end_offset=3)) is None
    run(log.flush())
    assert not log.tail.has_pending
    assert log.log_end_offset == 3


def test_mechanism_44_a_flush_is_one_append_and_nothing_is_ever_overwritten() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, batch())
    disk.operations.clear()
    append(log, *[batch() for _ in range(50)])
    assert [operation[0] for operation in disk.operations] == ["append"]
    # A File has no other way to write: no log is written in place.


def test_the_batch_is_stored_as_it_came_but_for_offset_and_epoch() -> None:
    log = open_log(InstantDisk())
    append(log, batch())
    view = batch(b"x" * 100, codec=Codec.LZ4)
    came = bytes(view)
    append(log, view, leader_epoch=9)
    stored = bytes(log_bytes(log)[SIZE:])
    assert stored[12:16] == (9).to_bytes(4, "big")
    assert stored[16:] == came[16:]
    assert stored[:8] == (1).to_bytes(8, "big")


def test_a_refused_batch_leaves_no_trace() -> None:
    log = open_log(InstantDisk(), max_message_bytes=200)
    assert code_of(log, batch(b"x" * 200)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(log, batch()[:-1]) == ErrorCode.INVALID_RECORD
    assert code_of(log, batch(b"x" * 200)[:-1]) == ErrorCode.INVALID_RECORD, "what is no batch is not one too large"
    assert code_of(log, memoryview(bytearray(bytes(batch(b"x" * 100)) * 2))) == ErrorCode.INVALID_RECORD
    assert not log.tail.has_pending
    assert append(log, batch())[0].base_offset == 0


@pytest.mark.parametrize("timestamp_ms", [5, 1_800_000_000_000, 2**62])
def test_a_time_that_is_refused_comes_with_the_brokers_own(timestamp_ms: int) -> None:
    log = open_log(InstantDisk(), message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    with pytest.raises(KafkaError) as refused:
        append(log, batch(timestamp_ms=timestamp_ms), now_ms=1_700_000_000_000)
    assert f"timestamp {timestamp_ms} is more than message.timestamp." in refused.value.message
    assert "; this broker's clock shows 2023-11-14T22:13:20Z: if that is not the time, it is" in refused.value.message


def test_times_outside_the_bounds_are_refused() -> None:
    log = open_log(InstantDisk(), message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    for timestamp_ms, is_taken in [(8999, False), (9000, True), (10_500, True), (10_501, False), (-1, True)]:
        if is_taken:
            append(log, batch(timestamp_ms=timestamp_ms), now_ms=10_000)
        else:
            assert code_of(log, batch(timestamp_ms=timestamp_ms), now_ms=10_000) == ErrorCode.INVALID_TIMESTAMP
    claimed = batch()
    log_append_time = open_log(InstantDisk(), message_timestamp_type="LogAppendTime")
    append(log_append_time, claimed, now_ms=1000)
    claimed[0:8] = bytes(8)
    assert read_header(claimed).attributes & LOG_APPEND_TIME
    assert code_of(log, claimed, now_ms=1000) == ErrorCode.INVALID_TIMESTAMP
    assert code_of(log_append_time, claimed, now_ms=1000) == ErrorCode.INVALID_TIMESTAMP, "only a broker says so"


def test_a_record_without_a_key_is_refused_for_that_whatever_its_time() -> None:
    log = open_log(InstantDisk(), cleanup_policy="compact", message_timestamp_after_max_ms=500)
    assert code_of(log, batch(timestamp_ms=99_999, key=None), now_ms=10_000) == ErrorCode.INVALID_RECORD


def test_log_append_time_is_the_brokers() -> None:
    log = open_log(InstantDisk(), message_timestamp_type="LogAppendTime")
    (appended,) = append(log, batch(b"a", b"b", timestamp_ms=5), now_ms=7777)
    assert appended.append_time_ms == 7777
    assert [record.timestamp_ms for record in records_of(log)] == [7777, 7777]
    assert run(log.offset_for_timestamp(7000)) == (7777, 0, 0)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("codec", list(Codec))
def test_mechanism_18_the_topics_codec_re_encodes(name: str, codec: Codec) -> None:
    log = open_log(InstantDisk(), compression_type=name)
    append(log, batch(b"a" * 50, b"b" * 50, codec=codec))
    header = read_header(log_bytes(log))
    assert header.codec == {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "uncompressed": 0}[name]
    assert [record.value for record in records_of(log)] == [b"a" * 50, b"b" * 50]


def test_a_batch_that_grows_too_large_by_the_topics_codec_is_refused() -> None:
    view = batch(bytes(1000), codec=Codec.ZSTD)
    log = open_log(InstantDisk(), compression_type="uncompressed", max_message_bytes=len(view))
    assert code_of(log, view) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_takes_no_keyless_record() -> None:
    log = open_log(InstantDisk(), cleanup_policy="compact,delete")
    assert code_of(log, batch(key=None)) == ErrorCode.INVALID_RECORD
    assert append(log, batch())[0].base_offset == 0


def test_clients_write_no_control_batches_but_brokers_do() -> None:
    log = open_log(InstantDisk())
    marker = build_end_marker(is_commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=4, timestamp_ms=1)
    assert code_of(log, memoryview(marker)) == ErrorCode.INVALID_RECORD
    append(log, batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    assert log.producers.states[7].transaction_first_offset == 0
    stage(log, memoryview(marker), from_client=False)
    run(log.flush())
    state = log.producers.states[7]
    assert (state.transaction_first_offset, state.coordinator_epoch) == (-1, 4)
    assert read_header(log_bytes(log)[SIZE:]).attributes & CONTROL


def test_a_full_disk_fails_the_log_and_nothing_staged_counts() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, batch())
    disk.faults = [Fault("append", "", lasts=True)]
    stage(log, batch())
    with pytest.raises(StorageError):
        run(log.flush())
    disk.faults.clear()
    assert log.is_failed
    assert not log.tail.has_pending
    assert log.log_end_offset == 1
    assert code_of(log, batch()) == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(StorageError):
        run(log.flush())
    assert [record.offset for record in records_of(log)] == [0]


def test_a_failed_fsync_is_not_tried_again() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, batch())
    disk.faults = [Fault("sync", "", lasts=True)]
    with pytest.raises(StorageError):
        run(log.sync())
    disk.faults.clear()
    with pytest.raises(StorageError):
        run(log.sync())
    assert log.recovery_point == 0


# -- rolling


def test_mechanism_41_segments_roll_by_size() -> None:
    log = open_log(InstantDisk(), segment_bytes=10 * SIZE)
    append(log, *[batch() for _ in range(95)])
    assert [segment.size // SIZE for segment in log.segments] == [10] * 9 + [5]


def test_mechanism_41_segments_roll_by_the_time_of_batches() -> None:
    for is_one_flush in (True, False):
        log = open_log(InstantDisk(), segment_ms=100)
        views = [batch(timestamp_ms=timestamp) for timestamp in (1000, 1100, 1101, 1050, 1201, 1202)]
        if is_one_flush:
            append(log, *views)
        else:
            for view in views:
                append(log, view)
        assert [segment.base_offset for segment in log.segments] == [0, 2, 5]


def test_segments_begun_together_do_not_roll_together_under_jitter() -> None:
    """segment.jitter.ms: each is closed earlier by a share of it, always the same one, and never later than segment.ms."""

    def rolled_at(timestamps: Iterable[int], *, is_one_flush: bool) -> list[int]:
        log = open_log(InstantDisk(), segment_ms=1000, segment_jitter_ms=400)
        views = [batch(timestamp_ms=timestamp) for timestamp in timestamps]
        for burst in [views] if is_one_flush else [[view] for view in views]:
            append(log, *burst)
        return [segment.base_offset for segment in log.segments]

    begins = rolled_at(range(0, 60_000, 10), is_one_flush=False)
    lengths = [10 * (end - begin) for begin, end in pairwise(begins)]
    assert all(600 < length <= 1010 for length in lengths), "the last batch of a segment is within its time, the next one is not"
    assert len(set(lengths)) > len(lengths) // 3
    assert rolled_at(range(0, 60_000, 10), is_one_flush=True) == begins


def test_segments_roll_when_the_index_is_full() -> None:
    log = open_log(InstantDisk(), segment_index_bytes=5 * 12, index_interval_bytes=0)
    for _ in range(20):
        append(log, batch())
    # The first batch of a segment has no entry, but room is kept for one.
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12, 18]


def test_mechanism_42_segment_files_are_named_by_their_base_offset_in_20_digits() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=3 * SIZE)
    append(log, *[batch(b"a") for _ in range(8)])
    run(log.close())
    names = set(run(disk.list_dir(DIRECTORY)))
    stems = ["00000000000000000000", "00000000000000000003", "00000000000000000006"]
    assert {stem + suffix for stem in stems for suffix in (".log", ".index", ".timeindex")} <= names
    assert {name for name in names if name.endswith(".snapshot")} == {
        "00000000000000000003.snapshot", "00000000000000000006.snapshot", "00000000000000000008.snapshot"
    }  # fmt: skip
    for stem in stems:
        assert read_header(run(disk.read_file(f"{DIRECTORY}/{stem}.log"))).base_offset == int(stem)


# -- reading


def test_every_offset_is_found_from_the_batch_that_holds_it() -> None:
    log = open_log(InstantDisk(), segment_bytes=700, index_interval_bytes=100)
    for index in range(60):
        append(log, batch(*[b"%d" % index] * (index % 4 + 1)))
    for offset in range(log.log_end_offset):
        part = run(log.read(offset, max_bytes=1, end_offset=log.log_end_offset))
        assert part is not None
        header = read_header(part.region.read())
        assert header.base_offset == part.first_offset <= offset <= header.last_offset
        assert len(part.region) == header.size_bytes


def test_mechanism_43_a_lookup_walks_from_the_nearest_index_entry() -> None:
    disk = InstantDisk()
    log = open_log(disk, index_interval_bytes=1000)
    for _ in range(40):
        append(log, *[batch(b"x" * 100) for _ in range(50)])
    index, _ = run(log.segments[0].load())
    assert 100 < len(index) < 400
    disk.preads = 0
    for offset in range(0, 2000, 37):
        assert run(log.read(offset, max_bytes=10**9, end_offset=2000)) is not None
    assert disk.preads <= 55  # one each: the walk from an entry stays within one small read


def test_a_read_never_goes_beyond_its_end_offset() -> None:
    log = open_log(InstantDisk(), segment_bytes=1000, index_interval_bytes=100)
    for _ in range(30):
        append(log, batch(b"a", b"b"))
    for offset in range(60):
        for end_offset in range(offset, 61):
            part = run(log.read(offset, max_bytes=10**6, end_offset=end_offset))
            if part is not None:
                data = part.region.read()
                last = read_header(data, len(data) - len(batch(b"a", b"b")))
                assert last.base_offset < end_offset
                assert last.last_offset < end_offset
            else:
                assert end_offset <= offset + (2 if offset % 2 == 0 else 1)


def test_reads_are_bounded_in_bytes_but_the_first_batch_is_complete() -> None:
    log = open_log(InstantDisk())
    append(log, *[batch() for _ in range(10)])
    assert len(read(log, 0, max_bytes=SIZE * 3 + 5, end_offset=10).region) == SIZE * 3 + 5
    assert len(read(log, 0, max_bytes=5, end_offset=10).region) == SIZE
    assert run(log.read(0, max_bytes=5, end_offset=10, min_one_message=False)) is None


def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = open_log(InstantDisk())
    append(log, *[batch() for _ in range(10)])
    log.advance_log_start_offset(4)
    for offset in (3, 11):
        with pytest.raises(KafkaError) as caught:
            run(log.read(offset, max_bytes=10, end_offset=10))
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert run(log.read(10, max_bytes=10, end_offset=10)) is None
    assert read(log, 4, max_bytes=10, end_offset=10).first_offset == 4


def test_a_tail_read_needs_neither_index_nor_header() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, *[batch() for _ in range(5)])
    read(log, 0, end_offset=5)
    append(log, batch(), batch())
    disk.preads = 0
    part = read(log, 5, end_offset=7)
    assert disk.preads == 0
    assert (part.first_offset, len(part.region)) == (5, 2 * SIZE)


def test_a_second_read_from_the_same_place_needs_neither_index_nor_header() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, *[batch() for _ in range(5)])
    for offset in (0, 2, 3):
        read(log, offset, end_offset=5)
    disk.preads = 0
    for offset in (0, 2, 3, 0):
        part = read(log, offset, end_offset=5)
        assert (part.first_offset, len(part.region)) == (offset, (5 - offset) * SIZE)
    assert disk.preads == 0


def test_readers_of_a_backlog_do_not_push_out_the_place_at_the_tail() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, *[batch() for _ in range(100)])
    read(log, 50, end_offset=100)
    for offset in range(50):
        read(log, offset, max_bytes=SIZE, end_offset=100)
    append(log, batch())
    disk.preads = 0
    assert read(log, 100, end_offset=101).first_offset == 100
    assert disk.preads == 0


def test_remembered_places_survive_rolls_and_truncation() -> None:
    log = open_log(InstantDisk(), segment_bytes=4 * SIZE)
    for index in range(20):
        append(log, batch(b"%d" % (index % 10)))
        assert read(log, index, end_offset=index + 1).first_offset == index
    run(log.truncate_to(5))
    append(log, batch(b"a longer one"), batch(b"b"))  # other positions than before
    for offset in (5, 6):
        assert read(log, offset, max_bytes=1, end_offset=7).first_offset == offset
    assert [record.value for record in records_of(log)][5:] == [b"a longer one", b"b"]


def test_a_read_that_ended_before_the_tail_is_not_taken_for_the_tail() -> None:
    log = open_log(InstantDisk())
    append(log, *[batch() for _ in range(5)])
    assert len(read(log, 0, end_offset=3).region) == 3 * SIZE
    append(log, batch(b"x"))
    part = read(log, 5, end_offset=6)
    assert [record.offset for record in iterate_records(part.region.read())] == [5]
    part = read(log, 3, end_offset=4)
    assert [record.offset for record in iterate_records(part.region.read())] == [3]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.sampled_from([0, 1, 4]))
def test_a_time_is_found_as_a_search_through_all_records_finds_it(times: list[int], codec: int) -> None:
    log = open_log(InstantDisk(), segment_bytes=600, index_interval_bytes=50)
    for timestamp in times:
        append(log, batch(b"a", b"b", timestamp_ms=timestamp, codec=codec), leader_epoch=3)
    everything = [(record.timestamp_ms, record.offset, 3) for record in records_of(log)]
    for wanted in range(-1, 64):
        assert run(log.offset_for_timestamp(wanted)) == next((found for found in everything if found[0] >= wanted), None)
    assert run(log.offset_of_max_timestamp()) == max(everything, key=lambda found: (found[0], -found[1]))
    middle = log.log_end_offset // 2
    log.advance_log_start_offset(middle)
    assert run(log.offset_for_timestamp(10)) == next((found for found in everything if found[0] >= 10 and found[1] >= middle), None)


def test_records_without_times_are_found_by_none() -> None:
    log = open_log(InstantDisk())
    assert run(log.offset_of_max_timestamp()) is None
    append(log, batch(timestamp_ms=-1))
    assert run(log.offset_for_timestamp(0)) is None
    assert run(log.offset_of_max_timestamp()) is None


# -- epochs and the two ends


def test_epochs_follow_the_batches() -> None:
    log = open_log(InstantDisk())
    append(log, batch(), batch(), leader_epoch=1)
    append(log, batch(), leader_epoch=4)
    assert log.epochs.entries == [(1, 0), (4, 2)]
    assert log.end_offset_for_epoch(2) == (1, 2)
    assert log.end_offset_for_epoch(4) == (4, 3)
    assert log.end_offset_for_epoch(5) == (-1, -1)


@pytest.mark.parametrize("offset", range(26))
def test_truncation_leaves_what_lies_before(offset: int) -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=600, index_interval_bytes=50)
    for index in range(13):
        append(log, idempotent(2 * index, 2), leader_epoch=index // 4)
    everything = records_of(log)
    run(log.sync())
    run(log.truncate_to(offset))
    end = offset - offset % 2 if offset < 26 else 26  # a batch that holds the offset goes whole
    assert log.log_end_offset == end
    assert log.recovery_point <= end
    assert records_of(log) == everything[:end]
    assert all(start < end for _, start in log.epochs.entries)
    assert append(log, idempotent(end))[0].base_offset == end
    run(log.close())
    again = open_log(disk, clean=True)
    assert (again.log_end_offset, again.epochs.entries) == (end + 1, log.epochs.entries)
    assert again.producers.states == log.producers.states


def test_a_log_can_start_again_at_any_offset() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=3 * SIZE)
    append(log, *[idempotent(index) for index in range(10)])
    run(log.truncate_fully_and_start_at(100))
    assert len(log.producers) == 0
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, log.epochs.entries) == (100, 100, 0, [])
    assert append(log, batch())[0].base_offset == 100
    run(log.close())
    again = open_log(disk, clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (100, 101)


def test_only_closed_segments_wholly_below_are_deleted() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=3 * SIZE)
    append(log, *[batch() for _ in range(10)])
    in_flight = read(log, 0, max_bytes=SIZE, end_offset=10).region
    log.advance_log_start_offset(5)
    assert run(log.delete_segments_below(5)) == 1
    assert [segment.base_offset for segment in log.segments] == [3, 6, 9]
    names = [name for name in run(disk.list_dir(DIRECTORY)) if name.startswith("0" * 20)]
    assert [name.split(".", 1)[1] for name in names] == ["index.deleted", "log.deleted", "timeindex.deleted"]
    run(log.remove_deleted(now_ms=59_999))
    assert set(names) <= set(run(disk.list_dir(DIRECTORY)))
    run(log.remove_deleted(now_ms=60_000))
    assert not set(names) & set(run(disk.list_dir(DIRECTORY)))
    assert [record.offset for record in records_of(log)] == [5, 6, 7, 8, 9]
    assert len(in_flight.read()) == SIZE  # what is being sent stays readable
    log.advance_log_start_offset(10)
    assert run(log.delete_segments_below(10)) == 2
    assert [segment.base_offset for segment in log.segments] == [9]
    run(log.close())
    again = open_log(disk, clean=True, log_start_offset=10)
    assert (again.log_start_offset, again.log_end_offset) == (10, 10)


def test_a_segment_that_becomes_the_last_one_again_rolls_by_its_own_first_time() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=3 * SIZE, segment_ms=100)
    append(log, *[batch(timestamp_ms=1000) for _ in range(20)])
    run(log.close())
    again = open_log(disk, clean=True, segment_bytes=4 * SIZE, segment_ms=100)
    run(again.truncate_to(3))
    assert [segment.base_offset for segment in again.segments] == [0]
    append(again, batch(timestamp_ms=1101))
    assert [segment.base_offset for segment in again.segments] == [0, 3]


# -- durability as the owner sees it


def test_sync_moves_the_recovery_point_and_what_is_below_survives_a_power_cut() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=3 * SIZE)
    append(log, *[batch() for _ in range(7)], now_ms=5000)
    assert (log.durability.unsynced_messages, log.tail.unsynced_since_ms, log.durability.has_unsynced_segments) == (7, 5000, True)
    run(log.sync())
    assert (log.recovery_point, log.durability.unsynced_messages, log.tail.unsynced_since_ms, log.durability.has_unsynced_segments) == (
        7,
        0,
        -1,
        False,
    )
    append(log, batch(), now_ms=6000)
    found = open_log(disk.power_cut(lambda path, durable, written: durable), recovery_point=7)
    assert found.log_end_offset == 7
    assert records_of(found) == records_of(log)[:7]


def test_closed_segments_keep_no_index_in_memory_beyond_two() -> None:
    log = open_log(InstantDisk(), segment_bytes=2 * SIZE, index_interval_bytes=0)
    append(log, *[batch() for _ in range(40)])
    records_of(log)
    assert sum(segment.is_loaded for segment in log.segments) <= 3  # and the last one


def test_a_changed_configuration_holds_from_the_next_batch_on() -> None:
    log = open_log(InstantDisk())
    append(log, batch())
    log.configure(LogConfig(max_message_bytes=10, segment_bytes=SIZE))
    assert code_of(log, batch()) == ErrorCode.MESSAGE_TOO_LARGE
    log.configure(LogConfig(segment_bytes=SIZE))
    append(log, batch())
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_log_whose_batches_have_no_times_is_indexed_all_the_same() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=6 * SIZE, index_interval_bytes=SIZE)
    for number in range(20):
        append(log, batch(timestamp_ms=-1) if number < 15 else batch(timestamp_ms=number))
    for again in (log, open_log(disk, segment_bytes=6 * SIZE, index_interval_bytes=SIZE)):
        assert [record.offset for record in records_of(again)] == list(range(20))
        assert run(again.offset_for_timestamp(0)) == (15, 15, 0)


def test_a_batch_that_no_segment_holds_is_refused() -> None:
    """RECORD_LIST_TOO_LARGE, as from Kafka."""
    log = open_log(InstantDisk(), segment_bytes=SIZE)
    append(log, batch())
    assert code_of(log, batch(b"larger")) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_largest_time_is_of_the_records_that_are_left() -> None:
    log = open_log(InstantDisk(), segment_bytes=3 * SIZE)
    for time_ms in (5, 9, 3, 4, 2):
        append(log, batch(timestamp_ms=time_ms))
    append(log, batch(b"a", b"b", timestamp_ms=1))
    for start, expected in ((0, (9, 1)), (2, (4, 3)), (4, (2, 4)), (6, (2, 6))):
        log.advance_log_start_offset(start)
        found = run(log.offset_of_max_timestamp())
        assert found is not None
        assert found[:2] == expected
    log.advance_log_start_offset(7)
    assert run(log.offset_of_max_timestamp()) is None


def test_an_epoch_without_records_begins_at_the_logs_end() -> None:
    log = open_log(InstantDisk())
    append(log, batch(), batch(), leader_epoch=3)
    log.enter_epoch(5)
    assert log.end_offset_for_epoch(5) == (5, 2)
    assert log.end_offset_for_epoch(4) == (3, 2)
    assert log.end_offset_for_epoch(6) == (-1, -1)
    append(log, batch(), leader_epoch=5)
    assert log.end_offset_for_epoch(5) == (5, 3)


def test_a_closed_log_takes_nothing_more() -> None:
    """A request that was received before an orderly stop, and is begun after it, may not be acknowledged."""
    log = open_log(InstantDisk())
    append(log, batch())
    run(log.close())
    with pytest.raises(StorageError):
        stage(log, batch())


def test_retention_of_records_without_times_goes_by_when_the_file_was_written() -> None:
    """A restart does not make them young again."""
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=SIZE, retention_ms=1000)
    for _ in range(3):
        append(log, batch(timestamp_ms=-1))
    run(log.close())
    for file in disk.files.values():
        file.modified_ms = 500
    again = open_log(disk, clean=True, segment_bytes=SIZE, retention_ms=1000)
    assert run(again.retained_from(1400)) == 0
    assert run(again.retained_from(1600)) == 2


def test_partitions_do_not_write_to_a_full_directory_until_room_was_found() -> None:
    """Its reserve is for the metadata log, which a partition would fill at once."""
    disk = InstantDisk()
    log = open_log(disk)
    log.health.room = Room(disk, DIRECTORY)
    log.health.room.is_full = True
    stage(log, batch())
    with pytest.raises(StorageError):
        run(log.flush())
    assert (disk.contents()[f"{DIRECTORY}/{0:020d}.log"], log.is_failed) == (b"", False)
    log.health.room.is_full = False
    append(log, batch())


def test_the_reserve_of_a_directory_takes_what_must_be_written() -> None:
    disk = InstantDisk([DIRECTORY])
    room = Room(disk, DIRECTORY)
    assert run(room.keep_back())
    log = open_log(reserved(disk, room), fails_when_full=True)
    disk.capacity_bytes = disk.used_bytes
    append(log, batch())
    assert not run(room.keep_back()), "it is used"
    disk.capacity_bytes = VOLUME_BYTES
    assert run(room.keep_back())
