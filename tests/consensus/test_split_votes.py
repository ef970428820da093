"""Two survivors of a leader that stand against each other: neither waits for the vote of the one that is dead."""

from __future__ import annotations

import pytest

from ottla.consensus.calls import Vote, VoteAnswer
from ottla.consensus.effects import Effect, SendRequest
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Candidate
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.errors import ErrorCode

DEAD, OWN, OTHER = 1, 2, 3
VOTERS = VoterSet(dict.fromkeys((DEAD, OWN, OTHER), bytes(16)))
BACKOFF_MS_MAX = 100
"""After the first election that was lost."""


def votes(effects: tuple[Effect, ...]) -> dict[int, Vote]:
    return {effect.peer: effect.request for effect in effects if isinstance(effect, SendRequest) and isinstance(effect.request, Vote)}


def candidate() -> tuple[Quorum, dict[int, Vote], int]:
    """In the epoch after that of the leader that is dead; what it asks, and when."""
    quorum = Quorum(QuorumSettings(OWN, VOTERS), ElectionState(4, DEAD, -1), LogShape())
    quorum.start(0)
    quorum.on_peer_dead(DEAD, 10)
    now_ms = quorum.next_deadline_ms()
    asked = votes(tuple(quorum.on_tick(now_ms)))
    asked = votes(tuple(quorum.on_answer(OTHER, asked[OTHER], VoteAnswer(ErrorCode.NONE, 4, -1, is_granted=True), now_ms)))
    assert isinstance(quorum.role, Candidate)
    assert asked.keys() == {DEAD, OTHER}
    return quorum, asked, now_ms


@pytest.mark.parametrize("is_refused_first", [True, False])
def test_one_refusal_and_one_absence_end_a_candidacy_of_three(is_refused_first: bool) -> None:
    quorum, asked, now_ms = candidate()
    refusal = VoteAnswer(ErrorCode.NONE, 5, -1)
    if is_refused_first:
        quorum.on_answer(OTHER, asked[OTHER], refusal, now_ms)
    quorum.on_connection_lost(DEAD, now_ms)
    if not is_refused_first:
        quorum.on_answer(OTHER, asked[OTHER], refusal, now_ms)
    assert isinstance(quorum.role, Candidate)
    assert quorum.role.deadline_ms <= now_ms + BACKOFF_MS_MAX, "the next round is near"


def test_an_absence_alone_does_not() -> None:
    """The other may be slow, and its vote is enough."""
    quorum, asked, now_ms = candidate()
    quorum.on_connection_lost(DEAD, now_ms)
    assert isinstance(quorum.role, Candidate)
    assert not quorum.role.is_lost
    quorum.on_answer(OTHER, asked[OTHER], VoteAnswer(ErrorCode.NONE, 5, -1, is_granted=True), now_ms)
    assert quorum.leader_id == OWN
