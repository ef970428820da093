"""Who may start, and as what."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.consensus.calls import BeginEpoch, EndEpoch, Fetch, FetchSnapshot, SnapshotId, Vote, VoteAnswer
from ottla.consensus.effects import PersistElection, ReadPieceAndReply, Reply
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Candidate, Follower, Leader, Resigned, Unattached
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.errors import ErrorCode, KafkaError

ZERO, ONE, OTHER = bytes(16), bytes([1] * 16), bytes([2] * 16)
STATIC = VoterSet(dict.fromkeys((1, 2, 3), ZERO))
NAMED = VoterSet({1: ONE, 2: bytes([12] * 16), 3: bytes([13] * 16)})


def started(settings: QuorumSettings, election: ElectionState, log: LogShape | None = None) -> Quorum:
    quorum = Quorum(settings, election, log or LogShape())
    quorum.start(0)
    return quorum


def error_of(quorum: Quorum, request: Any) -> ErrorCode:
    [reply] = [effect for effect in quorum.on_request("token", request, 1) if isinstance(effect, Reply)]
    return ErrorCode(reply.answer.error)


def test_a_voter_that_does_not_know_how_it_voted_is_refused() -> None:
    with pytest.raises(KafkaError, match="it may have voted before and could vote twice"):
        Quorum(QuorumSettings(1, STATIC), None, LogShape())


def test_an_observer_needs_no_election_state() -> None:
    quorum = Quorum(QuorumSettings(9, STATIC), None, LogShape())
    quorum.start(0)
    assert isinstance(quorum.role, Unattached)


def test_an_election_state_older_than_the_log_is_refused() -> None:
    with pytest.raises(KafkaError, match="has epoch 3, and its log has records of epoch 4"):
        Quorum(QuorumSettings(1, STATIC), ElectionState(3), LogShape([(4, 0)], end_offset=2))


def test_a_directory_that_is_not_the_voters_is_an_observer() -> None:
    quorum = started(QuorumSettings(1, NAMED, directory_id=OTHER), ElectionState(4, -1, 2))
    assert not quorum.is_voter
    assert started(QuorumSettings(1, NAMED, directory_id=ONE), ElectionState()).is_voter
    assert error_of(quorum, Vote(5, 2, 0, 0)) == ErrorCode.INCONSISTENT_VOTER_SET


def test_a_leader_that_starts_again_resigns_and_a_follower_returns_to_its_leader() -> None:
    assert isinstance(started(QuorumSettings(1, STATIC), ElectionState(4, 1, 1)).role, Resigned)
    role = started(QuorumSettings(1, STATIC), ElectionState(4, 2, 1)).role
    assert isinstance(role, Follower)
    assert role.leader_id == 2


def test_a_lone_voter_leads_at_once_and_persists_once() -> None:
    quorum = Quorum(QuorumSettings(1, VoterSet({1: ZERO})), ElectionState(4), LogShape())
    effects = quorum.start(0)
    assert isinstance(quorum.role, Leader)
    assert [effect for effect in effects if isinstance(effect, PersistElection)] == [
        PersistElection(ElectionState(5, 1, 1), is_binding=True)
    ]
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        quorum.append(5, 1, None, 1)
    quorum.on_flushed(1, 0, 1)
    assert quorum.high_watermark == 1
    assert quorum.append(5, 1, None, 1)


@pytest.mark.parametrize("count", [0, 6])
def test_a_quorum_has_one_to_five_voters(count: int) -> None:
    with pytest.raises(KafkaError, match=f"1 to 5 voters, not {count}"):
        VoterSet(dict.fromkeys(range(count), ZERO))


REQUESTS: list[tuple[Any, ErrorCode]] = [
    (Vote(5, 2, 3, 0, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (Vote(5, 2, 5, 0), ErrorCode.INVALID_REQUEST),
    (Vote(5, 2, 6, 0, is_pre=True), ErrorCode.INVALID_REQUEST),
    (Vote(5, 2, -1, 0), ErrorCode.INVALID_REQUEST),
    (Vote(5, 9, 3, 0), ErrorCode.INCONSISTENT_VOTER_SET),
    (Vote(5, 2, 3, 0, voter_id=3), ErrorCode.INVALID_VOTER_KEY),
    (Vote(5, 2, 3, 0, voter_id=1, voter_directory=OTHER), ErrorCode.INVALID_VOTER_KEY),
    (Vote(5, 2, 3, 0, candidate_directory=OTHER), ErrorCode.INVALID_VOTER_KEY),
    (Vote(3, 2, 2, 0), ErrorCode.FENCED_LEADER_EPOCH),
    (Vote(5, 2, 3, 0, voter_id=1, voter_directory=ONE), ErrorCode.NONE),
    (BeginEpoch(5, 2, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (BeginEpoch(5, 1), ErrorCode.INVALID_REQUEST),
    (BeginEpoch(5, 9), ErrorCode.INVALID_REQUEST),
    (BeginEpoch(5, 2, voter_id=1, voter_directory=OTHER), ErrorCode.INVALID_VOTER_KEY),
    (BeginEpoch(3, 2), ErrorCode.FENCED_LEADER_EPOCH),
    (BeginEpoch(5, 2), ErrorCode.NONE),
    (EndEpoch(5, 2, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (EndEpoch(5, 1), ErrorCode.INVALID_REQUEST),
    (EndEpoch(3, 2), ErrorCode.FENCED_LEADER_EPOCH),
    (EndEpoch(5, 2), ErrorCode.NONE),
    (Fetch(4, 2, 0, 0, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (Fetch(3, 2, 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
    (Fetch(5, 2, 0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
    (Fetch(4, 2, 0, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (FetchSnapshot(4, 2, SnapshotId(1, 1), 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
]


@pytest.mark.parametrize(("request_", "error"), REQUESTS)
def test_requests_are_judged_as_kafka_does(request_: Any, error: ErrorCode) -> None:
    quorum = started(QuorumSettings(1, NAMED, directory_id=ONE, cluster_id="cluster"), ElectionState(4))
    assert error_of(quorum, request_) == error


def leading() -> Quorum:
    quorum = started(QuorumSettings(1, VoterSet({1: ZERO})), ElectionState(4))
    quorum.on_flushed(1, 0, 1)
    return quorum


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Fetch(5, 9, -1, 0), ErrorCode.INVALID_REQUEST),
        (Fetch(5, 9, 0, 6), ErrorCode.INVALID_REQUEST),
        (Fetch(5, 9, 1, 5), ErrorCode.NONE),
        (FetchSnapshot(5, 9, SnapshotId(5, 2), 0), ErrorCode.SNAPSHOT_NOT_FOUND),
        (FetchSnapshot(5, 9, SnapshotId(5, 1), 70), ErrorCode.POSITION_OUT_OF_RANGE),
        (FetchSnapshot(5, 9, SnapshotId(5, 1), -1), ErrorCode.POSITION_OUT_OF_RANGE),
        (BeginEpoch(5, 1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_to_a_leader_are_judged_as_kafka_does(request_: Any, error: ErrorCode) -> None:
    quorum = leading()
    quorum.on_snapshots(((SnapshotId(5, 1), 70),), 1, 1)
    assert error_of(quorum, request_) == error


@pytest.mark.parametrize(("asked", "given"), [(10, 10), (2**31 - 1, 1024 * 1024)])
def test_a_piece_of_a_snapshot_is_no_larger_than_the_leader_allows(asked: int, given: int) -> None:
    quorum = leading()
    quorum.on_snapshots(((SnapshotId(5, 1), 70),), 1, 1)
    [reply] = quorum.on_request("token", FetchSnapshot(5, 9, SnapshotId(5, 1), 0, asked), 1)
    assert isinstance(reply, ReadPieceAndReply)
    assert reply.max_bytes == given


def test_what_a_snapshot_has_is_committed_and_older_ones_may_be_deleted_at_once() -> None:
    older, newest = (SnapshotId(4, 6), 60), (SnapshotId(4, 8), 70)
    log = LogShape([(4, 6)], start_offset=6, start_epoch=4, end_offset=9, snapshots=(older, newest))
    quorum = started(QuorumSettings(1, STATIC), ElectionState(4, 2), log)
    assert quorum.high_watermark == 8
    quorum.on_snapshots((newest,), 8, 1)
    assert (quorum.log.start_offset, quorum.log.snapshots) == (8, (newest,))


def test_a_candidate_that_stops_is_not_elected() -> None:
    quorum = started(QuorumSettings(1, STATIC), ElectionState(4))
    quorum.on_tick(quorum.next_deadline_ms() + 3000)
    quorum.on_answer(2, Vote(4, 1, 0, 0, is_pre=True), VoteAnswer(0, 4, -1, is_granted=True), 3001)
    assert isinstance(quorum.role, Candidate)
    quorum.stop(3002)
    assert quorum.on_answer(2, Vote(5, 1, 0, 0), VoteAnswer(0, 5, -1, is_granted=True), 3003) == ()
    assert quorum.has_handed_over


def test_a_copy_goes_its_own_way() -> None:
    quorum = leading()
    made = quorum.copy()
    assert made.key() == quorum.key()
    assert hash(made.key()) == hash(quorum.key())
    made.append(5, 3, None, 2)
    assert (made.log.end_offset, quorum.log.end_offset) == (4, 1)
    assert made.key() != quorum.key()


@pytest.mark.parametrize("voters", [STATIC, NAMED])
def test_a_vote_belongs_to_the_directory_that_asked_for_it(voters: VoterSet) -> None:
    """A voter that has another disk does not know what it was granted: its vote in that epoch would be a second one."""
    directory, other = bytes([12] * 16), bytes([9] * 16)
    quorum = started(QuorumSettings(1, voters, directory_id=ONE), ElectionState(4), LogShape())
    first, replaced = (Vote(5, 2, 0, 0, candidate_directory=asking) for asking in (directory, other))
    another = Vote(5, 3, 0, 0, candidate_directory=bytes([13] * 16))
    granted = []
    for request in (first, first, replaced, first, another):
        [reply] = [effect for effect in quorum.on_request("token", request, 1) if isinstance(effect, Reply)]
        assert isinstance(reply.answer, VoteAnswer)
        granted.append(reply.answer.is_granted)
    assert granted == [True, True, False, True, False]
