"""The quorum as its shell sees it: what happened goes in, what is to be done comes out. The package's docstring has the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.consensus import elections, following, leading
from ottla.consensus.calls import (
    Answer,
    BeginEpoch,
    BeginEpochAnswer,
    EndEpoch,
    EndEpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    Request,
    Vote,
    VoteAnswer,
)
from ottla.consensus.effects import AppendRecords, Effect, Token
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape, Snapshots
from ottla.consensus.roles import AnyRole, Candidate, Follower, Leader, Progress, Prospective, Resigned, Unattached
from ottla.consensus.settings import NEVER, QuorumSettings
from ottla.consensus.state import QuorumState
from ottla.errors import ErrorCode, KafkaError
from ottla.types import NO_LEADER

Effects = tuple[Effect, ...]


class Quorum:
    """One replica of the metadata log: a voter or an observer. Every method with ``now_ms`` returns effects, to be carried out in order."""

    __slots__ = ("_state",)

    def __init__(self, settings: QuorumSettings, election: ElectionState | None, log: LogShape) -> None:
        """Makes the machine of what is on disk: ``election`` is from ``quorum-state``, ``log`` from the log.

        INCONSISTENT_VOTER_SET for a voter that does not know how it voted: it could vote twice in one epoch.
        """
        problem = start_problem(settings, election, log)
        if problem is not None:
            raise KafkaError(ErrorCode.INCONSISTENT_VOTER_SET, problem)
        self._state = QuorumState(settings, election or ElectionState(), log)

    # -- what is known

    @property
    def settings(self) -> QuorumSettings:
        return self._state.settings

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch, -1 when none is known. Itself: see ``is_established`` before anything is decided."""
        return self._state.leader_id

    @property
    def is_electing(self) -> bool:
        """Whether a leader is looked for: none is known, or the known one has fallen silent."""
        return self.leader_id == NO_LEADER or type(self._state.role) is Prospective

    @property
    def election(self) -> ElectionState:
        return self._state.election

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed; -1 before anything is."""
        return self._state.high_watermark

    @property
    def log(self) -> LogShape:
        """To be looked at only."""
        return self._state.log

    @property
    def role(self) -> AnyRole:
        """To be looked at only."""
        return self._state.role

    @property
    def is_voter(self) -> bool:
        return self._state.is_voter

    @property
    def is_fatal(self) -> bool:
        return self._state.is_fatal

    @property
    def is_established(self) -> bool:
        """Whether this replica leads, and its LeaderChange is committed: ``append`` is open."""
        role = self._state.role
        return isinstance(role, Leader) and role.is_established

    @property
    def has_handed_over(self) -> bool:
        """After ``stop``: no voter has yet to learn that this one no longer leads."""
        role = self._state.role
        return not isinstance(role, Leader) and not (isinstance(role, Resigned) and role.tell_ms)

    def progress(self) -> tuple[Mapping[int, Progress], Mapping[tuple[int, bytes], Progress]]:
        """Returns how far the other voters are, and the observers, by id and directory id, on a leader (for DescribeQuorum)."""
        role = self._state.role
        return (role.voters, role.observers) if isinstance(role, Leader) else ({}, {})

    def next_deadline_ms(self) -> int:
        """Returns when ``on_tick`` is wanted; ``NEVER`` without anything due."""
        state, role = self._state, self._state.role
        if state.is_fatal:
            return NEVER
        if isinstance(role, Leader):
            return leading.next_ms(state, role)
        if isinstance(role, Follower | Unattached):
            return following.next_fetch_ms(state, role) if state.is_stopping else following.next_ms(state, role)
        deadline_ms = NEVER if state.is_stopping else role.deadline_ms
        if isinstance(role, Resigned):
            return min(deadline_ms, min(role.tell_ms.values(), default=NEVER))
        return NEVER if state.is_stopping else elections.next_ms(role)

    def copy(self) -> Quorum:
        """Returns an independent copy of the machine."""
        made = object.__new__(Quorum)
        made._state = self._state.copy()
        return made

    def key(self) -> tuple[Any, ...]:
        """Returns a hashable key, equal for machines that differ in times alone. For exhaustive search."""
        return self._state.key()

    # -- life

    def start(self, now_ms: int) -> Effects:
        """Starts the machine. To be called once, before anything else."""
        state, settings = self._state, self._state.settings
        election = state.election
        if state.is_voter and settings.voters.majority == 1 and len(settings.voters.ids) == 1:
            state.become_candidate(now_ms)
        elif state.is_voter and election.leader_id == settings.node_id:
            state.become_resigned(now_ms)
        elif election.leader_id >= 0 and election.leader_id != settings.node_id and election.leader_id in settings.voters:
            state.become_follower(election.leader_id, election.epoch, now_ms)
        else:
            state.become_unattached(election.epoch, now_ms)
        return self._done(now_ms)

    def stop(self, now_ms: int) -> Effects:
        """Ends in order: a leader resigns and names its successors, and no election is started from here. See ``has_handed_over``."""
        self._state.is_stopping = True
        return self.resign(now_ms)

    def resign(self, now_ms: int) -> Effects:
        """Resigns, on a leader (its controller has failed, or it stops)."""
        if isinstance(self._state.role, Leader):
            self._state.become_resigned(now_ms)
        return self._done(now_ms)

    def on_tick(self, now_ms: int) -> Effects:
        """Does what is due by now."""
        state, role = self._state, self._state.role
        if isinstance(role, Leader):
            leading.expire(state, role, now_ms)
        elif state.is_stopping:
            pass
        elif isinstance(role, Prospective | Candidate):
            if role.deadline_ms <= now_ms:
                elections.expire(state, role, now_ms)
        elif isinstance(role, Resigned):
            if role.deadline_ms <= now_ms:
                state.become_prospective(now_ms)
        elif isinstance(role, Follower):
            if min(role.deadline_ms, role.start_ms) <= now_ms:
                following.expire(state, role, now_ms)
        elif role.deadline_ms <= now_ms:
            following.expire(state, role, now_ms)
        return self._done(now_ms)

    # -- requests

    def on_request(self, token: Token, request: Request, now_ms: int) -> Effects:
        """Takes another replica's request, which is answered under its token, now or later."""
        state = self._state
        if isinstance(request, Fetch):
            leading.on_fetch(state, token, request, now_ms)
        elif isinstance(request, Vote):
            elections.on_vote(state, token, request, now_ms)
        elif isinstance(request, BeginEpoch):
            following.on_begin_epoch(state, token, request, now_ms)
        elif isinstance(request, EndEpoch):
            following.on_end_epoch(state, token, request, now_ms)
        else:
            leading.on_fetch_snapshot(state, token, request, now_ms)
        return self._done(now_ms)

    def on_request_dropped(self, token: Token, now_ms: int) -> Effects:
        """Forgets a request whose connection has ended: it no longer needs an answer."""
        role = self._state.role
        if isinstance(role, Leader):
            role.parked.pop(token, None)
        return self._done(now_ms)

    # -- answers, and evidence

    def on_answer(self, peer: int, request: Request, answer: Answer, now_ms: int) -> Effects:
        """Takes the peer's answer to that request."""
        state = self._state
        if isinstance(request, Fetch | FetchSnapshot):
            assert isinstance(answer, FetchAnswer | FetchSnapshotAnswer), "an answer fits its request"
            following.on_fetch_answer(state, peer, request, answer, now_ms)
        elif isinstance(request, Vote):
            assert isinstance(answer, VoteAnswer), "an answer fits its request"
            elections.on_vote_answer(state, peer, request, answer, now_ms)
        elif isinstance(request, BeginEpoch):
            assert isinstance(answer, BeginEpochAnswer), "an answer fits its request"
            leading.on_begin_answer(state, peer, request, answer, now_ms)
        else:
            assert isinstance(answer, EndEpochAnswer), "an answer fits its request"
            leading.on_end_answer(state, peer, request, answer, now_ms)
        return self._done(now_ms)

    def on_connection_lost(self, peer: int, now_ms: int) -> Effects:
        """Takes the end of the connection to the peer, or a failed attempt: what was sent on it is not answered."""
        state, role = self._state, self._state.role
        if isinstance(role, Leader | Resigned):
            leading.on_connection_lost(state, role, peer, now_ms)
        elif isinstance(role, Follower | Unattached):
            following.on_connection_lost(state, role, peer, now_ms)
        else:
            elections.on_connection_lost(state, role, peer, now_ms)
        return self._done(now_ms)

    def on_peer_dead(self, peer: int, now_ms: int, *, rtt_ms: int = 0) -> Effects:
        """Takes a probe's proof that the peer's process is dead. ``rtt_ms``: the way to the other voters and back."""
        following.on_peer_dead(self._state, peer, rtt_ms, now_ms)
        return self._done(now_ms)

    def on_peer_alive(self, peer: int, now_ms: int) -> Effects:
        """Takes the peer's answer to a probe."""
        following.on_peer_alive(self._state, peer, now_ms)
        return self._done(now_ms)

    # -- the log

    def append(self, epoch: int, count: int, records: Any, now_ms: int) -> Effects:
        """Appends ``count`` records of the controller as one.

        NOT_LEADER_OR_FOLLOWER unless this is the established leader of ``epoch``.
        """
        state, role = self._state, self._state.role
        if not isinstance(role, Leader) or not role.is_established or epoch != state.epoch or state.is_fatal:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this replica does not lead epoch {epoch}")
        base_offset = state.log.end_offset
        state.log.append(epoch, base_offset + count)
        state.emit(AppendRecords(epoch, base_offset, base_offset + count, records, state.log.version))
        leading.wake(state, role)
        return self._done(now_ms)

    def on_flushed(self, end_offset: int, log_version: int, now_ms: int) -> Effects:
        """Takes the disk's word: all below ``end_offset`` of that version of the log is durable. What was cut meanwhile does not count."""
        state, role = self._state, self._state.role
        if log_version == state.log.version and end_offset > state.log.flushed_offset:
            state.log.flushed_offset = min(end_offset, state.log.end_offset)
            if isinstance(role, Leader):
                leading.advance(state, role)
        return self._done(now_ms)

    def on_snapshots(self, snapshots: Snapshots, log_start_offset: int, now_ms: int) -> Effects:
        """Takes the snapshots on disk, oldest first, and the log's start, which the newest one covers.

        What was found before a snapshot was installed no longer counts.
        """
        newest = snapshots[-1][0].end_offset if snapshots else 0
        if newest < self._state.log.start_offset:
            return self._done(now_ms)
        assert log_start_offset <= newest <= max(0, self._state.high_watermark), "a snapshot has what is committed, and all that is deleted"
        self._state.log.snapshots = snapshots
        self._state.log.start_at(log_start_offset)
        return self._done(now_ms)

    def _done(self, now_ms: int) -> Effects:
        """Sends what the role has to send now, and hands over all effects of the input."""
        state, role = self._state, self._state.role
        if state.orphans:
            leading.answer_orphans(state)
        if not state.is_fatal:
            if isinstance(role, Follower | Unattached):
                following.fetch(state, role, now_ms)
            elif isinstance(role, Leader | Resigned):
                leading.tell(state, role, now_ms)
            elif not state.is_stopping:
                elections.ask(state, role, now_ms)
        effects = tuple(state.out)
        state.out.clear()
        return effects


def start_problem(settings: QuorumSettings, election: ElectionState | None, log: LogShape) -> str | None:
    """Returns why a replica must not start, in words; None when it may."""
    if election is None:
        if settings.is_voter:
            return (
                f"node {settings.node_id} votes, and its quorum-state is missing: it may have voted before and could vote twice; "
                "restore the directory as a whole; or, while all other controllers run and lack nothing, remove the directory with its "
                "meta.properties and run `ottla storage format FILE --cluster-id ID` (docs/operating.md, Replace a lost controller)"
            )
        return None
    if election.epoch < log.last_epoch:
        return (
            f"quorum-state of node {settings.node_id} has epoch {election.epoch}, and its log has records of epoch {log.last_epoch}: "
            "the file is older than the log, and votes may be missing; restore the directory as a whole, or empty it"
        )
    return None
