"""Elections: who asks for votes, and who gets them.

A vote is granted once an epoch, to a candidate whose log is at least as complete as the voter's: by the epoch of the last record first,
by the end offset then. Since a majority has every committed record, and two majorities share a voter, a leader has all that is committed
(Raft 5.4.1).

A pre-vote changes nothing. It is granted on the same condition, unless this replica follows a leader that it has no reason of its own to
give up: then it refuses, and looks for itself (never on the asker's word: a voter with one dead link deposes no leader). Source:
KIP-595, KIP-853 (directory ids), KIP-996 (pre-vote).
"""

from __future__ import annotations

from ottla.consensus.calls import Vote, VoteAnswer
from ottla.consensus.effects import Probe, Reply, Token
from ottla.consensus.election_state import NO_VOTE
from ottla.consensus.roles import Candidate, Follower, LeaderLoss, Prospective, Resigned, Unattached
from ottla.consensus.settings import NEVER
from ottla.consensus.state import QuorumState
from ottla.errors import ErrorCode

_BACKOFF_MS_MIN = 50


def on_vote(state: QuorumState, token: Token, request: Vote, now_ms: int) -> None:
    """Answers the request; a vote that is granted is persisted first."""
    error = _mistake(state, request, now_ms)
    is_granted = False
    if error == ErrorCode.NONE:
        if request.epoch > state.epoch and not request.is_pre:
            state.become_unattached(request.epoch, now_ms)
        is_granted = _would_grant_pre_vote(state, request, now_ms) if request.is_pre else _grant(state, request, now_ms)
    state.emit(Reply(token, VoteAnswer(error, state.epoch, state.leader_id, is_granted)))


def _mistake(state: QuorumState, request: Vote, now_ms: int) -> ErrorCode:
    settings = state.settings
    if request.cluster_id is not None and request.cluster_id != settings.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.last_epoch < 0 or request.end_offset < 0 or request.last_epoch >= request.epoch + request.is_pre:
        return ErrorCode.INVALID_REQUEST
    if not state.is_voter or request.candidate_id not in settings.voters:
        return ErrorCode.INCONSISTENT_VOTER_SET
    if request.voter_id >= 0 and not settings.is_named(request.voter_id, request.voter_directory):
        return ErrorCode.INVALID_VOTER_KEY
    if not settings.voters.is_voter(request.candidate_id, request.candidate_directory):
        return ErrorCode.INVALID_VOTER_KEY
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE if state.is_believed(request.epoch, now_ms) else ErrorCode.INVALID_REQUEST


def _would_grant_pre_vote(state: QuorumState, request: Vote, now_ms: int) -> bool:
    leader_id, role = state.leader_id, state.role
    if leader_id == state.settings.node_id:
        return False
    if isinstance(role, Follower) and state.loss is LeaderLoss.NONE:
        state.emit(Probe(leader_id))
        return False
    if state.log.is_at_most(request.last_epoch, request.end_offset):
        return True
    if isinstance(role, Unattached | Resigned):  # without a leader, and this log is the better one: its own election must not wait for long
        soon_ms = now_ms + state.settings.stagger_ms + state.settings.jitter(state.settings.stagger_ms, state.epoch, now_ms)
        role.deadline_ms = min(role.deadline_ms, soon_ms)
    elif isinstance(role, Prospective) and request.candidate_id in role.refused:  # by now it has given up the leader, and would grant
        role.refused -= {request.candidate_id}
        role.ask_ms[request.candidate_id] = now_ms
    return False


def _grant(state: QuorumState, request: Vote, now_ms: int) -> bool:
    election = state.election
    if state.leader_id >= 0 or election.voted_id not in (NO_VOTE, request.candidate_id):
        return False
    if not state.log.is_at_most(request.last_epoch, request.end_offset):
        return False
    if election.voted_id == NO_VOTE:
        state.become_unattached(request.epoch, now_ms, voted_id=request.candidate_id, voted_directory=request.candidate_directory)
        return True
    return election.voted_directory == request.candidate_directory


def on_vote_answer(state: QuorumState, peer: int, request: Vote, answer: VoteAnswer, now_ms: int) -> None:
    """Takes an answer: a majority of grants makes a candidate of a prospective one, and a leader of a candidate."""
    if state.learn(answer.leader_id, answer.epoch, now_ms):
        return
    role = state.role
    if not isinstance(role, Prospective | Candidate) or request.epoch != state.epoch or request.is_pre is not isinstance(role, Prospective):
        return
    if state.is_stopping:
        return
    role.ask_ms.pop(peer, None)
    if answer.is_granted and answer.error == ErrorCode.NONE:
        role.granted |= {peer}
        role.refused -= {peer}
        if len(role.granted) + 1 >= state.settings.voters.majority:
            if isinstance(role, Prospective):
                state.become_candidate(now_ms)
            else:
                state.become_leader(now_ms)
        return
    role.refused |= {peer} - role.granted
    if isinstance(role, Candidate):
        role.absent -= {peer}
    _look_at_refusals(state, role, now_ms)


def _look_at_refusals(state: QuorumState, role: Prospective | Candidate, now_ms: int) -> None:
    """Ends a lost election. Absent voters cannot make up for refusals: two candidates that share the votes wait for no dead leader."""
    voters = state.settings.voters
    absent = role.absent if isinstance(role, Candidate) and role.refused else frozenset()
    if len(voters.ids) - len(role.refused | absent) < voters.majority:
        _lost(state, role, now_ms)


def _lost(state: QuorumState, role: Prospective | Candidate, now_ms: int) -> None:
    """Gives this round up, for a majority is out of reach: back to the leader, or once more a little later."""
    settings = state.settings
    if isinstance(role, Candidate):
        if not role.is_lost:
            role.is_lost = True
            state.lost_elections += 1
            bound_ms = min(settings.election_backoff_max_ms, _BACKOFF_MS_MIN << min(state.lost_elections, 10))
            role.deadline_ms = now_ms + settings.jitter(bound_ms, state.epoch, now_ms)
            role.ask_ms.clear()
    elif state.loss >= LeaderLoss.DEAD:
        # The others are about to find out for themselves; if they do not, perhaps it was no proof.
        again_ms = state.retry_ms(role.since_ms, now_ms) + settings.jitter(settings.stagger_ms, state.epoch, now_ms)
        role.ask_ms |= dict.fromkeys(role.refused, again_ms)
        role.refused = frozenset()
    elif role.leader_id >= 0:
        state.become_follower(role.leader_id, state.epoch, now_ms)


def expire(state: QuorumState, role: Prospective | Candidate, now_ms: int) -> None:
    """Ends a round in which too few answered: a prospective one returns to its leader; else the next round starts."""
    if isinstance(role, Candidate) and not role.is_lost:
        state.lost_elections += 1
    if isinstance(role, Prospective) and role.leader_id >= 0 and state.loss < LeaderLoss.DEAD:
        state.become_follower(role.leader_id, state.epoch, now_ms)
    else:
        if isinstance(role, Prospective) and state.loss is LeaderLoss.DEAD:
            state.emit(Probe(role.leader_id))
        state.become_prospective(now_ms)


def ask(state: QuorumState, role: Prospective | Candidate, now_ms: int) -> None:
    """Asks the voters whose turn it is for their votes."""
    settings, log = state.settings, state.log
    for peer, due_ms in role.ask_ms.items():
        if due_ms <= now_ms:
            role.ask_ms[peer] = now_ms + settings.request_timeout_ms
            request = Vote(
                state.epoch, settings.node_id, log.last_epoch, log.end_offset, isinstance(role, Prospective),
                settings.directory_id, peer, settings.voters.directories[peer], settings.cluster_id,
            )  # fmt: skip
            state.send(peer, request)


def on_connection_lost(state: QuorumState, role: Prospective | Candidate, peer: int, now_ms: int) -> None:
    """Asks the peer again after a while."""
    if peer not in role.ask_ms:
        return
    role.ask_ms[peer] = min(role.ask_ms[peer], state.retry_ms(role.since_ms, now_ms))
    if isinstance(role, Candidate):
        role.absent |= {peer}
        _look_at_refusals(state, role, now_ms)


def next_ms(role: Prospective | Candidate) -> int:
    return min(role.deadline_ms, min(role.ask_ms.values(), default=NEVER))
