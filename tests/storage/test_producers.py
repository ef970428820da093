"""Idempotent producers: the window of five, and what survives a restart."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.batches import append, batch, idempotent, open_log, records_of, stage

from ottla.errors import DecodeError, ErrorCode, KafkaError, StorageError
from ottla.records.control import build_end_marker
from ottla.records.crc import crc32c
from ottla.sim.disk import VOLUME_BYTES
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers import ProducerStates

LAST = 2**31 - 1


def code_of(log: PartitionLog, view: memoryview) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        stage(log, view)
    return caught.value.code


@pytest.mark.parametrize("is_pending", [True, False])
def test_each_of_the_last_five_batches_is_known_as_a_duplicate(is_pending: bool) -> None:
    log = open_log(InstantDisk())
    for index in range(6):
        stage(log, idempotent(2 * index, 2))
        if not is_pending:
            run(log.flush())
    for index in range(1, 6):
        again = stage(log, idempotent(2 * index, 2))
        assert (again.base_offset, again.last_offset, again.is_duplicate) == (2 * index, 2 * index + 1, True)
    assert code_of(log, idempotent(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    run(log.flush())
    assert log.log_end_offset == 12


def test_a_gap_is_refused_and_what_fills_it_is_taken() -> None:
    log = open_log(InstantDisk())
    append(log, idempotent(0))
    assert code_of(log, idempotent(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(1), idempotent(2))
    assert log.log_end_offset == 3


def test_a_written_batch_is_known_while_a_later_one_is_pending() -> None:
    log = open_log(InstantDisk())
    append(log, idempotent(0))
    stage(log, idempotent(1))
    assert stage(log, idempotent(0)).is_duplicate
    assert stage(log, idempotent(1)).is_duplicate


def test_a_retry_of_another_size_is_no_duplicate() -> None:
    log = open_log(InstantDisk())
    append(log, idempotent(0, 3))
    assert code_of(log, idempotent(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_is_not_known_begins_at_zero_where_nothing_was_ever_deleted() -> None:
    """Its earlier batch was refused, by who does not lead yet; librdkafka would take it for written once this one is."""
    log = open_log(InstantDisk())
    assert code_of(log, idempotent(7)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(0), idempotent(1))


def forget_by_deletion(log: PartitionLog) -> None:
    log.advance_log_start_offset(1)


def forget_by_age(log: PartitionLog) -> None:
    assert log.expire_producers(1 << 50) == 1


def forget_by_starting_over(log: PartitionLog) -> None:
    run(log.truncate_fully_and_start_at(10))


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("forget", [forget_by_deletion, forget_by_age, forget_by_starting_over])
def test_a_producer_begins_anywhere_where_some_were_forgotten(forget: Callable[[PartitionLog], None], is_closed: bool) -> None:
    """After a start in order, too; after another one as far as the log itself says so."""
    disk = InstantDisk()
    log = open_log(disk)
    append(log, idempotent(0, producer_id=1))
    forget(log)
    append(log, idempotent(41))
    assert code_of(log, idempotent(43)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(42))
    if is_closed:
        run(log.close())
    start = log.log_start_offset
    again = open_log(disk, clean=is_closed, log_start_offset=start)
    if is_closed or start > 0:
        append(again, idempotent(5, producer_id=8))


def test_what_was_forgotten_stays_so_when_the_log_is_cut() -> None:
    log = open_log(InstantDisk())
    append(log, idempotent(0, producer_id=1))
    log.tail.remember_producers()
    forget_by_age(log)
    append(log, idempotent(0, producer_id=2))
    run(log.truncate_to(1))
    append(log, idempotent(41))


def test_a_snapshot_of_before_says_that_some_may_be_lacking() -> None:
    states = ProducerStates()
    body = struct.pack(">i", 0)
    assert ProducerStates.from_snapshot(struct.pack(">hI", 1, crc32c(body)) + body).may_lack_some
    assert not ProducerStates.from_snapshot(states.to_snapshot()).may_lack_some


def test_sequences_wrap_after_the_largest() -> None:
    log = begins_anywhere()
    append(log, idempotent(LAST - 1))
    append(log, idempotent(LAST))
    append(log, idempotent(0))
    wrapped = begins_anywhere()
    append(wrapped, idempotent(LAST - 1, 4))  # LAST - 1, LAST, 0, 1
    assert stage(wrapped, idempotent(LAST - 1, 4)).is_duplicate
    assert code_of(wrapped, idempotent(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(wrapped, idempotent(2))


def begins_anywhere() -> PartitionLog:
    log = open_log(InstantDisk())
    log.producers.may_lack_some = True
    return log


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    log = open_log(InstantDisk())
    append(log, idempotent(0), idempotent(1))
    assert code_of(log, idempotent(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(0, epoch=1))
    assert code_of(log, idempotent(2, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(log, idempotent(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stage(log, idempotent(0, epoch=1)).is_duplicate
    append(log, idempotent(1, epoch=1))


def test_an_end_marker_with_a_new_epoch_fences_too() -> None:
    log = open_log(InstantDisk())
    append(log, idempotent(0))
    marker = build_end_marker(is_commit=False, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=0)
    stage(log, memoryview(marker), from_client=False)
    run(log.flush())
    assert code_of(log, idempotent(1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(log, idempotent(5, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(0, epoch=1))


def test_producers_do_not_disturb_each_other_nor_those_without_an_id() -> None:
    log = open_log(InstantDisk())
    append(log, idempotent(0), idempotent(0, producer_id=8), batch(), idempotent(1), idempotent(1, producer_id=8), batch())
    assert log.log_end_offset == 6
    assert sorted(log.producers.states) == [7, 8]


def test_a_duplicate_under_log_append_time_has_its_old_time() -> None:
    log = open_log(InstantDisk(), message_timestamp_type="LogAppendTime")
    append(log, idempotent(0), now_ms=5000)
    assert stage(log, idempotent(0), now_ms=9000).append_time_ms == 5000


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [150, 10**6])
def test_producers_are_as_they_were_after_a_restart(clean: bool, segment_bytes: int) -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=segment_bytes)
    for index in range(7):
        append(log, idempotent(index), idempotent(0, producer_id=9, epoch=index // 3) if index % 3 == 0 else batch())
    if clean:
        run(log.close())
    again = open_log(disk, clean=clean, segment_bytes=segment_bytes)
    assert {key: (state.epoch, state.batches) for key, state in again.producers.states.items()} == {
        key: (state.epoch, state.batches) for key, state in log.producers.states.items()
    }
    assert stage(again, idempotent(2)).is_duplicate
    assert code_of(again, idempotent(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(again, idempotent(7))


def test_a_batch_that_a_crash_swallowed_is_no_duplicate_afterwards() -> None:
    disk = InstantDisk()
    log = open_log(disk, segment_bytes=150)
    append(log, idempotent(0))
    stages = [stage(log, idempotent(index)) for index in range(1, 6)]
    before = disk.replay(len(disk.operations))
    assert [found.base_offset for found in stages] == [1, 2, 3, 4, 5]
    disk.operations.clear()
    run(log.flush())
    for count in range(len(disk.operations) + 1):
        found = open_log(continued(before, disk, count), segment_bytes=150)
        last = found.log_end_offset
        for index in range(6):
            again = stage(found, idempotent(index)) if index >= last - 5 else None
            assert again is None or again.is_duplicate == (index < last)
        run(found.flush())
        assert [record.value for record in records_of(found)] == [b"%d" % index for index in range(6)]


def continued(before: InstantDisk, disk: InstantDisk, count: int) -> InstantDisk:
    """``before``, with the first ``count`` operations of the other disk's trace carried out too."""
    joined = InstantDisk(before.directories)
    joined.operations = before.operations + disk.operations
    return joined.replay(len(before.operations) + count)


def test_silent_producers_expire() -> None:
    log = open_log(InstantDisk(), producer_id_expiration_ms=1000)
    append(log, idempotent(0), now_ms=5000)
    append(log, idempotent(0, producer_id=8), now_ms=5500)
    append(log, batch(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True), now_ms=5000)
    assert log.expire_producers(5999) == 0
    assert log.expire_producers(6000) == 1
    assert sorted(log.producers.states) == [8, 9]  # a producer with an open transaction stays
    append(log, idempotent(77))


@given(st.integers(0, 4), st.integers(0, 6), st.data())
def test_a_snapshot_is_read_back_or_known_as_damaged(producers: int, batches: int, data: st.DataObject) -> None:
    states = ProducerStates()
    for producer_id in range(producers):
        for index in range(batches):
            states.apply(producer_id, 3, (index, index, index * 2, index * 2, -1), 10, is_transactional=index == 2)
    snapshot = states.to_snapshot()
    assert ProducerStates.from_snapshot(snapshot).states == states.states
    damaged = bytearray(snapshot)
    damaged[data.draw(st.integers(0, len(snapshot) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for wrong in (bytes(damaged), snapshot[: data.draw(st.integers(0, len(snapshot) - 1))], snapshot + b"x"):
        with pytest.raises(DecodeError):
            ProducerStates.from_snapshot(wrong)


def test_the_batch_right_after_a_snapshot_counts_after_a_crash() -> None:
    disk = InstantDisk()
    log = open_log(disk)
    append(log, idempotent(0))
    run(log.close())
    log = open_log(disk, clean=True)
    append(log, idempotent(0, producer_id=9))
    append(log, idempotent(1))
    again = open_log(disk)
    assert again.producers.states.keys() == {7, 9}
    assert stage(again, idempotent(0, producer_id=9)).is_duplicate


@pytest.mark.parametrize("why", ["no room", "another epoch"])
def test_batches_after_an_unwritten_batch_are_refused_with_its_code(why: str) -> None:
    """Not as out of order: librdkafka would take the records for lost, and send all that is on its way again under a new epoch."""
    disk = InstantDisk()
    log = open_log(disk)
    append(log, idempotent(0))
    stage(log, idempotent(1))
    if why == "no room":
        disk.capacity_bytes = disk.used_bytes
        with pytest.raises(StorageError):
            run(log.flush())
        disk.capacity_bytes = VOLUME_BYTES
    else:
        log.tail.drop_unwritten()
    wanted = ErrorCode.KAFKA_STORAGE_ERROR if why == "no room" else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [code_of(log, idempotent(2)), code_of(log, idempotent(3))] == [wanted, wanted]
    append(log, idempotent(1), idempotent(2))
    assert code_of(log, idempotent(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "that is a gap of its own"
