"""What a new leader says of its high watermark: it may know of less than the leader before it has said."""

from __future__ import annotations

from ottla.consensus.calls import Fetch, FetchAnswer, Span, Vote, VoteAnswer
from ottla.consensus.effects import ReadAndReply, Reply, SendRequest
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Leader
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet

OBSERVER = 9


def elected() -> Quorum:
    """Returns the leader of epoch 5. The leader of epoch 4, now dead, had given it the records 0-4, and said that three were committed."""
    quorum = Quorum(QuorumSettings(1, VoterSet(dict.fromkeys((1, 2, 3), bytes(16)))), ElectionState(4, 2), LogShape())
    [fetch] = [effect.request for effect in quorum.start(0) if isinstance(effect, SendRequest)]
    quorum.on_answer(2, fetch, FetchAnswer(0, 4, 2, 3, records="a", spans=(Span(4, 0, 5),)), 1)
    quorum.on_flushed(5, 0, 2)
    quorum.on_peer_dead(2, 3)
    asked = quorum.on_tick(quorum.next_deadline_ms())
    for _ in ("the pre-vote", "the vote"):
        [request] = [effect.request for effect in asked if isinstance(effect, SendRequest) and effect.peer == 3]
        assert isinstance(request, Vote)
        asked = quorum.on_answer(3, request, VoteAnswer(0, request.epoch, -1, is_granted=True), 50)
    assert isinstance(quorum.role, Leader)
    assert (quorum.epoch, quorum.high_watermark, quorum.log.end_offset) == (5, 3, 6)
    return quorum


def said(quorum: Quorum, replica_id: int, offset: int, now_ms: int) -> int:
    """Returns the high watermark in the answer to a fetch."""
    [found] = quorum.on_request(f"{replica_id} at {now_ms}", Fetch(5, replica_id, offset, 4 if offset < 6 else 5), now_ms)
    assert isinstance(found, Reply | ReadAndReply)
    assert isinstance(found.answer, FetchAnswer)
    return found.answer.high_watermark


def test_a_new_leader_says_no_high_watermark_until_a_record_of_its_epoch_is_committed() -> None:
    """Its predecessor may have said 5, and Kafka's replicas end their process where a high watermark goes back."""
    quorum = elected()
    assert said(quorum, OBSERVER, 5, 60) == -1
    quorum.on_flushed(6, 0, 61)
    assert said(quorum, OBSERVER, 5, 62) == -1
    assert said(quorum, 3, 5, 63) == -1
    quorum.on_request("3 has it", Fetch(5, 3, 6, 5), 64)
    assert quorum.is_established
    assert said(quorum, OBSERVER, 5, 65) == 6


def test_a_new_leader_has_no_news_of_what_it_does_not_say() -> None:
    """Otherwise a replica that knows less, and has all records, would ask and be answered in a loop."""
    quorum = elected()
    assert quorum.on_request("waits", Fetch(5, OBSERVER, 6, 5, high_watermark=0, max_wait_ms=500), 60) == ()
    quorum.on_flushed(6, 0, 61)
    answered = [effect for effect in quorum.on_request("3 has it", Fetch(5, 3, 6, 5), 64) if isinstance(effect, Reply)]
    assert ("waits", 6) in [(reply.token, reply.answer.high_watermark) for reply in answered if isinstance(reply.answer, FetchAnswer)]
