"""Where logs part, what is durable, and when a log is too old."""

from __future__ import annotations

import pytest

from ottla.consensus.calls import EpochEnd, Fetch, FetchAnswer, FetchSnapshot, FetchSnapshotAnswer, SnapshotId, Span, Vote, VoteAnswer
from ottla.consensus.effects import AppendFetched, InstallSnapshot, Reply, SendRequest, TruncateLog, WriteSnapshotPiece
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Follower, Leader, Prospective, Unattached
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet

THREE = VoterSet(dict.fromkeys((1, 2, 3), bytes(16)))


def log() -> LogShape:
    """Offsets 0-2 of epoch 1, 3-5 of epoch 3, 6-9 of epoch 4."""
    return LogShape([(1, 0), (3, 3), (4, 6)], end_offset=10)


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "expected"),
    [
        (0, 0, None),
        (10, 4, None),
        (6, 3, None),
        (4, 3, None),
        (11, 4, EpochEnd(4, 10)),
        (7, 3, EpochEnd(3, 6)),
        (7, 2, EpochEnd(1, 3)),
        (2, 1, None),
        (9, 9, EpochEnd(4, 10)),
    ],
)
def test_a_replica_continues_or_is_told_where_the_logs_part(fetch_offset: int, last_epoch: int, expected: EpochEnd | None) -> None:
    assert log().mismatch(fetch_offset, last_epoch) == expected


def test_a_replica_that_is_older_than_the_log_is_sent_to_the_snapshot() -> None:
    shape = log()
    shape.snapshots = ((SnapshotId(3, 5), 100), (SnapshotId(3, 6), 120))
    shape.start_at(5)
    newest = SnapshotId(3, 6)
    assert (shape.start_offset, shape.start_epoch) == (5, 3)
    assert shape.mismatch(0, 0) == newest
    assert shape.mismatch(5, 1) == newest
    assert shape.mismatch(8, 2) == newest
    assert shape.mismatch(5, 3) is None
    assert shape.mismatch(10, 4) is None


def test_a_log_after_a_snapshot_goes_on_from_there() -> None:
    shape = LogShape()
    shape.install(SnapshotId(3, 6), 120)
    assert (shape.start_offset, shape.end_offset, shape.flushed_offset, shape.last_epoch) == (6, 6, 6, 3)
    assert shape.mismatch(6, 3) is None
    shape.append(4, 8)
    assert shape.mismatch(8, 4) is None
    assert shape.mismatch(6, 3) is None
    assert shape.copy().key() == shape.key()


@pytest.mark.parametrize(("diverging", "point"), [(EpochEnd(3, 5), 5), (EpochEnd(3, 9), 6), (EpochEnd(2, 4), 3), (EpochEnd(0, 0), 0)])
def test_the_follower_keeps_what_may_be_the_leaders(diverging: EpochEnd, point: int) -> None:
    assert log().parting_point(diverging) == point


def test_an_fsync_that_began_before_a_cut_does_not_count_after_it() -> None:
    quorum = Quorum(QuorumSettings(1, THREE), ElectionState(4, 2), LogShape([(1, 0), (4, 2)], end_offset=3))
    fetch = request_in(quorum.start(0))
    reply = FetchAnswer(0, 4, 2, 0, records="a", spans=(Span(4, 3, 5),))
    quorum.on_answer(2, fetch, reply, 1)
    fetch = request_in(quorum.on_flushed(5, 0, 2))
    effects = quorum.on_answer(2, fetch, FetchAnswer(0, 4, 2, 0, diverging=EpochEnd(1, 2)), 3)
    [cut] = [effect for effect in effects if isinstance(effect, TruncateLog)]
    assert (cut.end_offset, cut.log_version) == (2, 1)
    effects = quorum.on_answer(2, request_in(effects), FetchAnswer(0, 4, 2, 0, records="b", spans=(Span(4, 2, 6),)), 4)
    [appended] = [effect for effect in effects if isinstance(effect, AppendFetched)]
    assert quorum.on_flushed(5, 0, 5) == (), "the old fsync says nothing of the new records"
    assert quorum.log.flushed_offset == 2
    assert request_in(quorum.on_flushed(appended.end_offset, appended.log_version, 6)).fetch_offset == 6


@pytest.mark.parametrize("snapshot_id", [SnapshotId(4, 3), SnapshotId(4, 5), SnapshotId(3, 9)])
def test_a_snapshot_that_is_older_than_the_log_is_not_fetched(snapshot_id: SnapshotId) -> None:
    """Installed, it would take away what this voter has said that it has. Only by a leader's mistake is it sent there."""
    quorum = Quorum(QuorumSettings(1, THREE), ElectionState(4, 2), LogShape([(1, 0), (4, 2)], end_offset=5))
    fetch = request_in(quorum.start(0))
    assert quorum.on_answer(2, fetch, FetchAnswer(0, 4, 2, 0, snapshot_id=snapshot_id), 1) == ()
    again = request_in(quorum.on_tick(quorum.next_deadline_ms()))
    assert isinstance(again, Fetch)
    assert (again.fetch_offset, again.last_epoch) == (5, 4)


def test_a_voter_in_search_of_a_leader_waits_for_its_disk_too() -> None:
    quorum = Quorum(QuorumSettings(1, THREE), ElectionState(4, 2), LogShape())
    fetch = request_in(quorum.start(0))
    quorum.on_answer(2, fetch, FetchAnswer(0, 4, 2, 0, records="a", spans=(Span(4, 0, 5),)), 1)
    quorum.on_request("token", Vote(5, 3, 4, 5), 2)
    assert isinstance(quorum.role, Unattached)
    assert quorum.on_tick(900) == (), "the one that it asks may be the leader, and would count what is not on disk"
    assert request_in(quorum.on_flushed(5, 0, 901)).fetch_offset == 5


def with_a_slow_disk(now_ms: int) -> Quorum:
    """A follower of node 2 that has had five records for a while, and has none of them on disk."""
    quorum = Quorum(QuorumSettings(1, THREE), ElectionState(4, 2), LogShape())
    fetch = request_in(quorum.start(0))
    quorum.on_answer(2, fetch, FetchAnswer(0, 4, 2, 0, records="a", spans=(Span(4, 0, 5),)), now_ms)
    return quorum


def test_a_voter_whose_disk_is_slow_does_not_suspect_the_leader() -> None:
    quorum = with_a_slow_disk(1)
    assert quorum.on_tick(5000) == (), "it has asked for nothing"
    assert isinstance(quorum.role, Follower)
    request_in(quorum.on_flushed(5, 0, 5001))
    quorum.on_tick(9000)
    assert isinstance(quorum.role, Prospective)


def test_a_voter_with_a_slow_disk_shows_that_it_lives_and_claims_only_what_is_on_disk() -> None:
    quorum, now_ms = with_a_slow_disk(1), 1
    for _ in range(20):
        now_ms = quorum.next_deadline_ms()
        sign = request_in(quorum.on_tick(now_ms))
        assert (sign.fetch_offset, sign.last_epoch, sign.max_wait_ms, sign.max_bytes) == (0, 0, 0, 0)
        answer = FetchAnswer(0, 4, 2, 5, diverging=EpochEnd(0, 0), records="a", spans=(Span(4, 0, 5),))
        assert quorum.on_answer(2, sign, answer, now_ms + 1) == ()
    assert now_ms > 9000
    assert isinstance(quorum.role, Follower)
    assert (quorum.log.end_offset, quorum.high_watermark) == (5, 0), "what lies beyond its disk may not be the leader's"
    assert request_in(quorum.on_flushed(5, 0, now_ms + 2)).fetch_offset == 5


def test_a_leader_that_is_dead_is_found_out_by_a_voter_whose_disk_is_slow() -> None:
    quorum = with_a_slow_disk(1)
    request_in(quorum.on_tick(quorum.next_deadline_ms()))
    while isinstance(quorum.role, Follower):
        quorum.on_tick(quorum.next_deadline_ms())
    assert isinstance(quorum.role, Prospective)


def test_a_leader_whose_voters_have_slow_disks_goes_on_to_lead() -> None:
    quorum = Quorum(QuorumSettings(1, THREE), ElectionState(4, 2), LogShape([(4, 0)], end_offset=3))
    quorum.start(0)
    now_ms = quorum.next_deadline_ms()
    while not isinstance(quorum.role, Leader):
        assert now_ms < 20_000
        effects = list(quorum.on_tick(now_ms))
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, SendRequest) and isinstance(effect.request, Vote):
                granted = VoteAnswer(0, quorum.epoch, -1, is_granted=True)
                effects += quorum.on_answer(effect.peer, effect.request, granted, now_ms)
        now_ms += 100
    began_ms, epoch = now_ms, quorum.epoch
    while now_ms < began_ms + 20_000:
        now_ms += 500
        quorum.on_tick(now_ms)
        found = quorum.on_request("sign", Fetch(epoch, 2, 3, 4, 0, 0, 0), now_ms)
        [answer] = [effect.answer for effect in found if isinstance(effect, Reply)]
        assert isinstance(answer, FetchAnswer)
        assert (answer.error, answer.spans) == (0, ()), "nothing was asked for"
    assert isinstance(quorum.role, Leader)
    assert quorum.high_watermark <= 3


def request_in(effects: tuple[object, ...]) -> Fetch:
    [sent] = [effect for effect in effects if isinstance(effect, SendRequest)]
    assert isinstance(sent.request, Fetch)
    return sent.request


@pytest.mark.parametrize(("last_epoch", "continues"), [(0, False), (2, False), (3, True), (4, False)])
def test_a_replica_at_the_logs_start_that_has_another_epoch_there_needs_the_snapshot(last_epoch: int, continues: bool) -> None:
    newest = SnapshotId(3, 5)
    cut = LogShape([(3, 5)], start_offset=5, start_epoch=3, end_offset=9, snapshots=((newest, 70),))
    assert cut.mismatch(5, last_epoch) == (None if continues else newest)


def downloading() -> tuple[Quorum, FetchSnapshot]:
    """A follower of epoch 4 with four records, three of them on its disk, that fetches a snapshot."""
    shape = LogShape([(1, 0)], end_offset=4)
    quorum = Quorum(QuorumSettings(1, THREE), ElectionState(4, 2), shape)
    quorum.start(0)
    role = quorum.role
    assert isinstance(role, Follower)
    assert isinstance(role.in_flight, Fetch)
    effects = quorum.on_answer(2, role.in_flight, FetchAnswer(0, 4, 2, 100, 100, None, SnapshotId(4, 100)), 1)
    [asked] = [effect.request for effect in effects if isinstance(effect, SendRequest)]
    assert isinstance(asked, FetchSnapshot)
    return quorum, asked


@pytest.mark.parametrize("position", [1, 50, -1])
def test_a_piece_that_begins_elsewhere_than_was_asked_does_not_count(position: int) -> None:
    quorum, asked = downloading()
    effects = quorum.on_answer(2, asked, FetchSnapshotAnswer(0, 4, 2, SnapshotId(4, 100), 60, position, b"x" * 60), 2)
    assert not [effect for effect in effects if isinstance(effect, WriteSnapshotPiece | InstallSnapshot)]
    assert quorum.log.end_offset == 4


def test_an_fsync_from_before_a_snapshot_was_installed_makes_nothing_after_it_durable() -> None:
    quorum, asked = downloading()
    before = quorum.log.version
    quorum.on_answer(2, asked, FetchSnapshotAnswer(0, 4, 2, SnapshotId(4, 100), 60, 0, b"x" * 60), 2)
    assert quorum.log.version == before + 1
    role = quorum.role
    assert isinstance(role, Follower)
    assert isinstance(role.in_flight, Fetch)
    quorum.on_answer(2, role.in_flight, FetchAnswer(0, 4, 2, 100, 100, None, None, (Span(4, 100, 110),)), 3)
    quorum.on_flushed(105, before, 4)
    assert quorum.log.flushed_offset == 100
    quorum.on_flushed(105, before + 1, 4)
    assert quorum.log.flushed_offset == 105


def test_a_list_of_snapshots_made_before_an_installation_is_ignored() -> None:
    quorum, asked = downloading()
    quorum.on_answer(2, asked, FetchSnapshotAnswer(0, 4, 2, SnapshotId(4, 100), 60, 0, b"x" * 60), 2)
    quorum.on_snapshots(((SnapshotId(1, 4), 10),), 4, 3)
    assert (quorum.log.start_offset, quorum.log.snapshots) == (100, ((SnapshotId(4, 100), 60),))
