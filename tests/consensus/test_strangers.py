"""Whatever anybody sends to a member of the quorum, it goes on, and persists nothing that would end elections."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.consensus import election_state
from ottla.consensus.calls import (
    BeginEpoch,
    BeginEpochAnswer,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Request,
    SnapshotId,
    Vote,
    VoteAnswer,
)
from ottla.consensus.effects import (
    AppendFetched,
    Effect,
    PersistElection,
    ReadAndReply,
    ReadPieceAndReply,
    Reply,
    SecondLeader,
)
from ottla.consensus.election_state import ElectionState
from ottla.consensus.epoch_trust import AHEAD_MAX, EPOCH_JUMP_MAX, EPOCH_LAST, PER_SECOND
from ottla.consensus.leading import OBSERVERS_MAX, PARKED_MAX
from ottla.consensus.log_shape import LogShape
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Candidate, Follower, Leader, Resigned, Unattached
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.errors import ErrorCode

VOTERS = VoterSet(dict.fromkeys((1, 2, 3), bytes(16)))
EPOCH = 5
LAST = 2**31 - 1
ROLES = ["unattached", "follower", "candidate", "leader", "resigned", "observer"]


def member(role: str, epoch: int = EPOCH) -> Quorum:
    """In ``epoch``, with four records of epoch 3 and 4 after a snapshot. As node 1, or 9 as the observer."""
    log = LogShape([(3, 2), (4, 4)], start_offset=2, start_epoch=2, end_offset=6, snapshots=((SnapshotId(2, 2), 70),))
    election = ElectionState(epoch, 2 if role in ("follower", "observer") else -1)
    if role in ("candidate", "leader", "resigned"):
        election = ElectionState(epoch - 1)
    quorum = Quorum(QuorumSettings(9 if role == "observer" else 1, VOTERS, cluster_id="cluster"), election, log)
    quorum.start(0)
    if role in ("candidate", "leader", "resigned"):
        quorum.on_tick(now_ms := quorum.next_deadline_ms() + 3000)
        quorum.on_answer(2, Vote(epoch - 1, 1, 4, 6, is_pre=True), VoteAnswer(0, epoch - 1, -1, is_granted=True), now_ms)
        if role != "candidate":
            quorum.on_answer(2, Vote(epoch, 1, 4, 6), VoteAnswer(0, epoch, -1, is_granted=True), now_ms)
        if role == "resigned":
            quorum.resign(now_ms)
    expected = {"observer": Follower, "unattached": Unattached, "follower": Follower, "candidate": Candidate, "leader": Leader}
    assert type(quorum.role) is expected.get(role, Resigned)
    assert quorum.epoch == epoch
    return quorum


NOW_MS = 10_000
numbers = st.one_of(st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 6, 7, 70, 10**6, LAST - 1, LAST, -(2**31)]), st.integers(-(2**31), LAST))
longs = st.one_of(numbers, st.sampled_from([2**63 - 1, -(2**63), 2**32]))
epochs = st.one_of(st.integers(EPOCH - 1, EPOCH + 2), numbers)
nodes = st.one_of(st.integers(1, 3), numbers)
ids = st.sampled_from([bytes(16), b"\xff" * 16])
clusters = st.sampled_from([None, None, None, "cluster", "other"])
requests = st.one_of(
    st.builds(Vote, epochs, nodes, epochs, longs, st.booleans(), ids, nodes, ids, clusters),
    st.builds(BeginEpoch, epochs, nodes, nodes, ids, clusters),
    st.builds(EndEpoch, epochs, nodes, st.lists(nodes, max_size=3).map(tuple), clusters),
    st.builds(Fetch, epochs, nodes, longs, epochs, longs, numbers, numbers, ids, clusters),
    st.builds(FetchSnapshot, epochs, nodes, st.builds(SnapshotId, epochs, longs), longs, numbers, ids, clusters),
)


def check_effects(effects: tuple[Effect, ...]) -> None:
    for effect in effects:
        if isinstance(effect, PersistElection):
            assert election_state.decode(election_state.encode(effect.election, voters=VOTERS.ids)).epoch == effect.election.epoch
            assert election_state.decode(election_state.encode(effect.election)) == effect.election
        elif isinstance(effect, ReadPieceAndReply):
            assert effect.max_bytes > 0
            assert 0 <= effect.answer.position < effect.answer.size
        elif isinstance(effect, ReadAndReply):
            assert effect.max_bytes > 0
            assert 0 <= effect.start_offset < effect.end_offset
        assert not isinstance(effect, AppendFetched)


@settings(max_examples=300)
@given(role=st.sampled_from(ROLES), said=st.lists(st.tuples(requests, st.integers(0, 50)), max_size=12))
def test_no_request_ends_a_member_or_takes_its_epochs(role: str, said: list[tuple[Request, int]]) -> None:
    quorum, now_ms = member(role), NOW_MS
    check_effects(quorum.on_tick(now_ms))
    elections = 0
    for number, (request, wait_ms) in enumerate(said):
        now_ms += wait_ms
        check_effects(quorum.on_request(number, request, now_ms))
        before = quorum.epoch
        check_effects(quorum.on_tick(now_ms))
        elections += quorum.epoch - before
        assert not quorum.is_fatal
    assert quorum.epoch <= EPOCH + AHEAD_MAX + elections + (now_ms - NOW_MS) * PER_SECOND // 1000 + 1


def ask(quorum: Quorum, request: Request, now_ms: int = NOW_MS) -> tuple[ErrorCode, tuple[Effect, ...]]:
    effects = quorum.on_request("token", request, now_ms)
    [reply] = [effect for effect in effects if isinstance(effect, Reply)]
    return ErrorCode(reply.answer.error), effects


JUMPS: list[Any] = [lambda epoch: Vote(epoch, 2, 4, 6), lambda epoch: BeginEpoch(epoch, 2), lambda epoch: EndEpoch(epoch, 2)]


@pytest.mark.parametrize("request_", JUMPS)
@pytest.mark.parametrize("role", ["unattached", "follower", "candidate", "leader", "resigned"])
@pytest.mark.parametrize("epoch", [LAST, LAST - 1, EPOCH_LAST, EPOCH_JUMP_MAX, EPOCH + AHEAD_MAX + 1])
def test_an_epoch_that_jumps_is_refused(request_: Any, role: str, epoch: int) -> None:
    quorum = member(role)
    error, effects = ask(quorum, request_(epoch))
    assert error == ErrorCode.INVALID_REQUEST
    assert not any(isinstance(effect, PersistElection) for effect in effects)
    assert quorum.epoch == EPOCH


@pytest.mark.parametrize("request_", JUMPS)
def test_the_next_epochs_are_believed(request_: Any) -> None:
    for epoch in (EPOCH + 1, EPOCH + AHEAD_MAX):
        quorum = member("follower")
        assert ask(quorum, request_(epoch))[0] == ErrorCode.NONE
        assert quorum.epoch == epoch


def test_many_small_jumps_come_no_further_than_elections_could() -> None:
    quorum = member("follower")
    for now_ms in range(NOW_MS, NOW_MS + 60_000, 10):
        quorum.on_request("token", Vote(quorum.epoch + 1, 2, 0, 0), now_ms)
        quorum.on_request("token", EndEpoch(quorum.epoch + AHEAD_MAX, 3), now_ms)
    assert quorum.epoch <= EPOCH + AHEAD_MAX + 60 * PER_SECOND


def test_members_that_ask_each_other_do_not_multiply_what_a_stranger_may() -> None:
    one, two = member("follower"), member("follower")
    for now_ms in range(NOW_MS, NOW_MS + 10_000, 10):
        one.on_request("token", EndEpoch(one.epoch + AHEAD_MAX, 3), now_ms)
        two.on_answer(1, BeginEpoch(EPOCH, 1), BeginEpochAnswer(0, one.epoch), now_ms)
        two.on_request("token", EndEpoch(two.epoch + AHEAD_MAX, 3), now_ms)
        one.on_answer(1, BeginEpoch(EPOCH, 1), BeginEpochAnswer(0, two.epoch), now_ms)
    assert max(one.epoch, two.epoch) <= EPOCH + AHEAD_MAX + 10 * PER_SECOND + 1


def test_a_voter_that_was_away_for_a_million_epochs_learns_the_epoch_from_the_voter_it_asks() -> None:
    quorum = member("follower")
    assert isinstance(quorum.role, Follower), "it has not been told that its leader is gone"
    asked = quorum.role.in_flight
    assert isinstance(asked, Fetch)
    quorum.on_answer(2, asked, FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, EPOCH_JUMP_MAX, 3), NOW_MS)
    assert (quorum.epoch, quorum.leader_id) == (EPOCH_JUMP_MAX, 3)


@pytest.mark.parametrize(("known", "told"), [(EPOCH, LAST), (EPOCH, EPOCH + EPOCH_JUMP_MAX + 1), (0, LAST), (0, EPOCH_LAST + 1)])
def test_an_epoch_that_nobody_reached_is_not_learned_from_answers_either(known: int, told: int) -> None:
    quorum = Quorum(QuorumSettings(9, VOTERS), ElectionState(known), LogShape())
    quorum.start(0)
    quorum.on_answer(2, Fetch(known, 9, 0, 0), FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, told, 3), 1)
    assert quorum.epoch == known


def test_a_new_observer_joins_a_quorum_of_any_age() -> None:
    quorum = Quorum(QuorumSettings(9, VOTERS), None, LogShape())
    quorum.start(0)
    quorum.on_answer(2, Fetch(0, 9, 0, 0), FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 40_000_000, 3), 1)
    assert (quorum.epoch, quorum.leader_id) == (40_000_000, 3)


@pytest.mark.parametrize("voters", [(1,), (1, 2, 3)])
def test_no_election_is_begun_after_the_last_epoch(voters: tuple[int, ...]) -> None:
    settings_ = QuorumSettings(1, VoterSet(dict.fromkeys(voters, bytes(16))))
    quorum = Quorum(settings_, ElectionState(EPOCH_LAST), LogShape())
    check_effects(quorum.start(0))
    now_ms = 0
    for _ in range(20):
        now_ms = max(now_ms + 1, quorum.next_deadline_ms())
        check_effects(quorum.on_tick(now_ms))
        if len(voters) > 1:
            granted = VoteAnswer(0, EPOCH_LAST, -1, is_granted=True)
            check_effects(quorum.on_answer(2, Vote(EPOCH_LAST, 1, 0, 0, is_pre=True), granted, now_ms))
    assert quorum.epoch == EPOCH_LAST
    assert not quorum.is_fatal


@pytest.mark.parametrize("role", ["follower", "leader", "resigned"])
@pytest.mark.parametrize("request_", [BeginEpoch(EPOCH, 3), EndEpoch(EPOCH, 3)])
def test_nobodys_word_makes_another_leader_of_an_epoch(role: str, request_: Request) -> None:
    quorum = member(role)
    before = quorum.leader_id
    error, effects = ask(quorum, request_)
    assert error == ErrorCode.FENCED_LEADER_EPOCH
    assert SecondLeader(EPOCH, 2 if role == "follower" else 1, 3) in effects
    assert quorum.leader_id == before
    effects = quorum.on_answer(2, Vote(EPOCH, 1, 0, 0), VoteAnswer(ErrorCode.NONE, EPOCH, 3), NOW_MS)
    assert any(isinstance(effect, SecondLeader) for effect in effects)
    assert quorum.leader_id == before
    assert not quorum.is_fatal


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31)])
def test_a_piece_of_no_bytes_is_refused(max_bytes: int) -> None:
    assert ask(member("leader"), FetchSnapshot(EPOCH, 2, SnapshotId(2, 2), 0, max_bytes))[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("max_wait_ms", "max_bytes"), [(-1, 1), (0, -1)])
def test_a_fetch_with_a_number_below_zero_is_refused(max_wait_ms: int, max_bytes: int) -> None:
    assert ask(member("leader"), Fetch(EPOCH, 2, 6, 4, max_wait_ms=max_wait_ms, max_bytes=max_bytes))[0] == ErrorCode.INVALID_REQUEST


def test_invented_observers_are_forgotten_and_the_voters_are_not() -> None:
    quorum = member("leader")
    for node in range(10, 10 + 2 * OBSERVERS_MAX):
        quorum.on_request(node, Fetch(EPOCH, node, 6, 4), NOW_MS)
    quorum.on_request("voter", Fetch(EPOCH, 2, 6, 4), NOW_MS)
    voters, observers = quorum.progress()
    assert len(observers) == OBSERVERS_MAX
    assert max(node for node, _ in observers) == 9 + 2 * OBSERVERS_MAX
    assert voters[2].end_offset == 6


def test_fetches_that_wait_are_bounded_and_those_of_voters_wait_on() -> None:
    quorum = member("leader")
    end = quorum.log.end_offset
    parked = [("voter", 2), *((number, 50) for number in range(2 * PARKED_MAX))]
    answered = []
    for token, node in parked:
        effects = quorum.on_request(token, Fetch(EPOCH, node, end, EPOCH, max_wait_ms=500), NOW_MS)
        answered += [effect.token for effect in effects if isinstance(effect, Reply)]
    assert answered == list(range(PARKED_MAX + 1)), "the one that has waited longest is answered"
