"""A follower of a partition: what it makes of its leader's answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.messages.fetch import EpochEndOffset, PartitionData
from ottla.records.epochs import EpochCache
from ottla.replication.follower import NEVER, Append, AskOffsets, Followed, StartOver, Truncate, Wait
from ottla.replication.high_watermark import HighWatermark


class Log:
    """By offset: which leader wrote the record, and what it is."""

    def __init__(self, records: list[tuple[int, int]] | None = None, *, start: int = 0) -> None:
        self.records = list(records or [])
        self.log_start_offset = start

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    @property
    def epochs(self) -> EpochCache:
        cache = EpochCache()
        for offset, (epoch, _) in enumerate(self.records, self.log_start_offset):
            cache.assign(epoch, offset)
        return cache

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, log_end_offset=self.log_end_offset)


def followed(high_watermark: int = 0) -> Followed:
    return Followed(9, 7, committed=HighWatermark(high_watermark), backoff_ms=1000)


def test_records_are_appended_and_what_the_leader_says_is_committed_is_so_within_the_log() -> None:
    follower, log = followed(), Log([(7, 0)] * 4)
    step = follower.on_answer(4, 7, PartitionData(0, high_watermark=10, log_start_offset=2, records=b"records"), log, 0)
    assert step == Append(b"records")
    assert (follower.high_watermark, follower.leader_start_offset) == (4, 2)
    log.records += [(7, 0)] * 3
    follower.leader_high_watermark(10, log)
    assert follower.high_watermark == 7
    follower.leader_high_watermark(5, log)
    assert follower.high_watermark == 7, "a new leader may know less of it for a while"


def test_late_answers_are_dropped() -> None:
    """Of an earlier leader epoch, and to an offset where the log no longer ends."""
    follower, log = followed(), Log([(7, 0)] * 4)
    late = PartitionData(0, high_watermark=4, records=b"records")
    assert follower.on_answer(4, 6, late, log, 0) is None
    assert follower.on_answer(3, 7, late, log, 0) is None
    assert follower.high_watermark == 0


def test_errors_let_it_wait() -> None:
    log = Log([(7, 0)] * 4)
    follower = followed()
    not_yet, offline, fenced = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH
    for code, until_ms in ((not_yet, 150), (offline, 1100), (fenced, NEVER)):
        assert follower.on_answer(4, 7, PartitionData(0, error_code=code), log, 100) == Wait(until_ms, code)
        assert not follower.may_fetch(until_ms - 1)
    assert not follower.may_fetch(2**40), "until the metadata says more"


def test_a_log_outside_of_the_leaders_is_cut_or_begun_again() -> None:
    for own, found, step in (
        (Log([(7, 0)] * 4), (0, 2), Truncate(2)),
        (Log([(7, 0)] * 4), (10, 20), StartOver(10)),
        (Log([(7, 0)] * 4, start=8), (0, 3), StartOver(3)),
        (Log([(7, 0)] * 4), (0, 9), None),
    ):
        follower = followed()
        offset = own.log_end_offset
        assert follower.on_answer(offset, 7, PartitionData(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE), own, 0) == AskOffsets()
        assert not follower.may_fetch(10**9), "not before it knows"
        assert follower.on_offsets(*found, own) == step
        assert follower.may_fetch(0)


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Logs of three replicas after elections: each leader goes on from its own log, and some of it reaches the others."""
    logs: list[list[tuple[int, int]]] = [[], [], []]
    value = 0
    for epoch in range(draw(st.integers(1, 6))):
        leader = logs[draw(st.integers(0, 2))]
        for _ in range(draw(st.integers(0, 5))):
            value += 1
            leader.append((epoch, value))
        for log in logs:
            shared = next((n for n, (own, other) in enumerate(zip(log, leader, strict=False)) if own != other), min(len(log), len(leader)))
            if log is not leader and draw(st.booleans()):
                log[:] = leader[: max(shared, draw(st.integers(0, len(leader))))]
    return logs


@given(histories())
def test_a_follower_ends_with_its_leaders_log_and_never_cuts_what_they_share(logs: list[list[tuple[int, int]]]) -> None:
    """KIP-101, KIP-279: several steps where epochs followed each other quickly."""
    leader, own = Log(logs[0]), Log(logs[1])
    shared = next((n for n, (a, b) in enumerate(zip(leader.records, own.records, strict=False)) if a != b), None)
    kept = min(leader.log_end_offset, own.log_end_offset) if shared is None else shared
    follower, leaders_epochs = followed(), leader.epochs
    leaders_epochs.assign(follower.leader_epoch, leader.log_end_offset)  # as every leader does when it is elected
    for _ in range(20):
        offset, last_epoch = own.log_end_offset, own.epochs.latest_epoch
        data = PartitionData(0, high_watermark=0, log_start_offset=0, records=b"")
        epoch, end = leaders_epochs.end_offset_for(last_epoch, log_end_offset=leader.log_end_offset)
        if last_epoch >= 0 and not (epoch == last_epoch and end >= offset):
            data.diverging_epoch = EpochEndOffset(epoch, end)
        elif offset > leader.log_end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data.records = b"x" if offset < leader.log_end_offset else b""
        step = follower.on_answer(offset, 7, data, own, 0)
        if isinstance(step, AskOffsets):
            step = follower.on_offsets(0, leader.log_end_offset, own)
        if isinstance(step, Truncate | StartOver):
            end = step.end_offset if isinstance(step, Truncate) else step.offset
            assert end >= kept, "what both have stays"
            del own.records[end:]
        elif isinstance(step, Append):
            own.records.append(leader.records[offset])
        elif step is None and own.records == leader.records:
            return
    assert own.records == leader.records


def test_a_high_watermark_of_an_earlier_leader_moves_nothing() -> None:
    committed, log = HighWatermark(2), Log([(7, 0)] * 4)
    follower = Followed(9, 7, committed=committed, backoff_ms=1000)
    follower.end()
    follower.leader_high_watermark(4, log)
    assert committed.offset == 2
