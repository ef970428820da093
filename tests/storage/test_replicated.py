"""What a follower's log takes from its leader's, byte for byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.batches import append, batch, idempotent, log_bytes, open_log, read, records_of, stage

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import HEADER, write_crc
from ottla.records.control import build_end_marker
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.log.partition_log import PartitionLog

SIZE = len(batch())


EPOCH = 90
"""Of the leader that sends."""


def replicate(
    follower: PartitionLog, data: bytes | memoryview, *, now_ms: int = 3000, leader_epoch: int = EPOCH, believes_gap: bool = False
) -> int:
    sent = memoryview(bytearray(data))
    taken = follower.tail.stage_replicated(sent, leader_epoch=leader_epoch, now_ms=now_ms, believes_gap=believes_gap)
    run(follower.flush())
    return taken


def at(offset: int, count: int, *, kept: int | None = None, leader_epoch: int = 0) -> memoryview:
    """A batch of these offsets, of which compaction has kept so many records."""
    view = batch(*[b"v%d" % number for number in range(kept or count)])
    fields = list(HEADER.unpack_from(view))
    fields[0], fields[2], fields[6] = offset, leader_epoch, count - 1
    HEADER.pack_into(view, 0, *fields)
    write_crc(view)
    return view


def refused(follower: PartitionLog, data: bytes | memoryview, *, leader_epoch: int = EPOCH) -> ErrorCode:
    before = follower.log_end_offset
    with pytest.raises(KafkaError) as caught:
        replicate(follower, data, leader_epoch=leader_epoch)
    assert not follower.tail.has_pending, "nothing of it is staged"
    assert follower.log_end_offset == before
    return caught.value.code


@given(st.data())
def test_a_follower_has_what_its_leader_has(data: st.DataObject) -> None:
    leader, follower = open_log(InstantDisk(), segment_bytes=7 * SIZE), open_log(InstantDisk(), segment_bytes=5 * SIZE)
    epoch = sequence = 0
    for _ in range(data.draw(st.integers(1, 15))):
        kind = data.draw(st.sampled_from(["plain", "idempotent", "marker", "epoch", "fetch"]))
        if kind == "plain":
            append(leader, batch(*[b"v"] * data.draw(st.integers(1, 4))), leader_epoch=epoch)
        elif kind == "idempotent":
            append(leader, idempotent(sequence, 2), leader_epoch=epoch)
            sequence += 2
        elif kind == "marker":
            marker = build_end_marker(is_commit=True, coordinator_epoch=3, producer_id=9, producer_epoch=epoch, timestamp_ms=5)
            stage(leader, memoryview(bytearray(marker)), leader_epoch=epoch, from_client=False)
            run(leader.flush())
        elif kind == "epoch":
            epoch += data.draw(st.integers(1, 2))
        else:
            fetch(leader, follower, data.draw(st.integers(1, 5 * SIZE)))
    while follower.log_end_offset < leader.log_end_offset:
        assert fetch(leader, follower, 2 * SIZE)
    assert log_bytes(follower) == log_bytes(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert records_of(follower) == records_of(leader)
    known = [
        {
            producer_id: (state.epoch, state.batches, state.coordinator_epoch, state.transaction_first_offset)
            for producer_id, state in log.producers.states.items()
        }
        for log in (leader, follower)
    ]
    assert known[0] == known[1]


def fetch(leader: PartitionLog, follower: PartitionLog, max_bytes: int) -> int:
    if follower.log_end_offset == leader.log_end_offset:
        return 0
    found = read(leader, follower.log_end_offset, max_bytes=max_bytes, end_offset=leader.log_end_offset)
    return replicate(follower, found.region.read())


def test_what_compaction_has_left_is_taken_as_it_is() -> None:
    follower = open_log(InstantDisk())
    data = bytes(at(5, 10, kept=2)) + bytes(at(40, 1)) + bytes(at(90, 3, kept=1))
    assert replicate(follower, data, believes_gap=True) == len(data)
    assert follower.log_end_offset == 93
    assert [record.offset for record in records_of(follower)] == [5, 6, 40, 90]


def test_batches_after_an_unexpected_gap_are_not_appended() -> None:
    """An answer whose file was cut and written again while it left would make a hole, for ever, in a replica that is in sync."""
    follower = open_log(InstantDisk())
    first, after = bytes(at(0, 2)), bytes(at(5, 2))
    assert replicate(follower, first + after) == len(first)
    assert replicate(follower, after) == 0
    assert follower.log_end_offset == 2
    assert replicate(follower, after, believes_gap=True) == len(after)
    assert follower.log_end_offset == 7


def test_what_is_cut_off_waits_for_the_next_fetch() -> None:
    follower = open_log(InstantDisk())
    first, second, third = bytes(at(0, 2)), bytes(at(2, 2)), bytes(at(4, 1))
    assert replicate(follower, first + second[:-1]) == len(first)
    assert replicate(follower, second + third[:30]) == len(second)
    assert follower.log_end_offset == 4


def test_batches_of_another_epoch_than_the_leader_can_have_are_not_taken() -> None:
    """Of a later one: it has become a follower, and its file is another one by now (KAFKA-18723). Of an earlier one: no log goes back."""
    follower = open_log(InstantDisk())
    good, later, earlier = bytes(at(0, 2, leader_epoch=4)), bytes(at(2, 2, leader_epoch=6)), bytes(at(2, 2, leader_epoch=3))
    assert replicate(follower, good + later, leader_epoch=5) == len(good)
    assert refused(follower, later, leader_epoch=5) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert refused(follower, earlier, leader_epoch=5) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert replicate(follower, later, leader_epoch=6) == len(later)
    assert follower.epochs.entries == [(4, 0), (6, 2)]


def test_nothing_is_staged_beside_a_write() -> None:
    """Where the log will end is not known then: batches of the leader would take the place of others, or leave some out."""
    follower = open_log(InstantDisk())
    follower.tail.stage_replicated(memoryview(bytearray(at(0, 2))), leader_epoch=EPOCH, now_ms=1, believes_gap=False)
    with pytest.raises(AssertionError):
        replicate(follower, at(2, 2))


def test_what_is_no_batch_or_does_not_fit_is_refused_whole() -> None:
    follower = open_log(InstantDisk())
    replicate(follower, at(0, 4))
    good, damaged = at(4, 2), bytearray(at(6, 1))
    damaged[-1] ^= 1
    assert refused(follower, bytes(good) + bytes(damaged)) == ErrorCode.CORRUPT_MESSAGE
    assert refused(follower, bytes(good) + bytes(100)) == ErrorCode.CORRUPT_MESSAGE
    assert refused(follower, at(2, 5)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert refused(follower, at(0, 4)) == ErrorCode.OFFSET_OUT_OF_RANGE, "nothing is left out: it was asked for at another end"
    assert replicate(follower, good) == len(good)


def test_sequences_are_not_judged_again_and_a_later_leader_knows_them() -> None:
    """The leader's records of a producer were deleted; a follower that begins behind them has never seen its first sequences."""
    follower = open_log(InstantDisk())
    replicate(follower, placed(idempotent(40, 3), 100), believes_gap=True)
    assert stage(follower, idempotent(40, 3)).is_duplicate
    assert stage(follower, idempotent(43)).base_offset == 103


def test_a_follower_appends_the_leaders_batches_whatever_their_sequence() -> None:
    """The leader had forgotten the producer, which had been silent for too long; the follower, which counts from its start, has not yet."""
    follower = open_log(InstantDisk())
    for sequence, offset in ((0, 0), (40, 3), (40, 6)):
        replicate(follower, placed(idempotent(sequence, 3), offset))
    assert follower.log_end_offset == 9
    assert stage(follower, idempotent(43)).base_offset == 9


def placed(view: memoryview, offset: int) -> memoryview:
    struct.pack_into(">q", view, 0, offset)
    return view
