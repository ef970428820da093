"""Every state of a small quorum: three voters, two epochs, three records, one crash.

A step is one thing that may happen next: a message arrives, a timeout is over, an fsync ends, the controller appends, a leader gives up,
a process dies and starts again without what was not fsynced. Messages may arrive in any order, or never; of the messages of one kind and
epoch from one node to another, the newest is kept. What a process persists is durable at once: dying before that is the same as dying
before the step. Times are left out of a state: any timeout may be over at any time. Pre-votes are left out too, and count as granted:
nothing that is safe rests on them. So are requests in search of a leader, and answers that carry only an epoch.

An entry is known by its offset and epoch, since an epoch has one leader; so logs are compared by their epochs, and no records are needed.
Voters are alike: node 1 starts the first election, and node 3 none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ottla.consensus.calls import BeginEpoch, EndEpoch, Fetch, Request, Span, Vote, VoteAnswer
from ottla.consensus.effects import (
    BecameLeader,
    Effect,
    Fatal,
    HighWatermark,
    PersistElection,
    ReadAndReply,
    Reply,
    SecondLeader,
    SendRequest,
)
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Candidate, Follower, Leader, Prospective
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.wire.schema import ZERO_UUID

NODES: Final = (1, 2, 3)
CANDIDATES: Final = (1, 2)
VOTERS: Final = VoterSet(dict.fromkeys(NODES, ZERO_UUID))
Channel = tuple[int, int, str, int]
"""From, to, what, and its epoch."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The bounds of the search."""

    epochs: int = 2
    appends: int = 1
    crashes: int = 1
    timeouts: int = 3
    states_max: int = 5_000_000


class Broken(AssertionError):
    """A promise is broken; the steps that lead there are its text."""


class State:
    """All nodes, what is under way, and what must stay true of the past."""

    __slots__ = ("appends", "clocks", "committed", "crashes", "keys", "leaders", "messages", "nodes", "steps", "timeouts", "votes")

    def __init__(self) -> None:
        self.nodes: dict[int, Quorum] = {}
        self.keys: dict[int, Any] = {}
        self.clocks: dict[int, int] = dict.fromkeys(NODES, 0)
        self.messages: dict[Channel, tuple[Request, Any]] = {}
        self.leaders: tuple[tuple[int, int], ...] = ()
        self.votes: frozenset[tuple[int, int, int]] = frozenset()
        self.committed: tuple[int, ...] = ()
        self.appends = 0
        self.crashes = 0
        self.timeouts = 0
        self.steps: Any = None  # a linked list: (the step before, this one)

    def copy(self) -> State:
        made = State.__new__(State)
        made.nodes, made.keys, made.clocks, made.messages = dict(self.nodes), dict(self.keys), dict(self.clocks), dict(self.messages)
        made.leaders, made.votes, made.committed = self.leaders, self.votes, self.committed
        made.appends, made.crashes, made.timeouts, made.steps = self.appends, self.crashes, self.timeouts, self.steps
        return made

    def key(self) -> int:
        counts = (self.appends, self.crashes, self.timeouts)
        return hash((tuple(self.keys.values()), frozenset(self.messages.items()), self.votes, self.committed, counts))

    # -- steps

    def own(self, node: int) -> Quorum:
        """Returns the node's machine, copied for this state alone."""
        quorum = self.nodes[node] = self.nodes[node].copy()
        state = quorum._state
        state.fetch_count = state.search_count = state.lost_elections = 0  # they change times and numbers alone
        return quorum

    def done(self, node: int, effects: tuple[Effect, ...]) -> None:
        quorum = self.nodes[node]
        for effect in effects:
            if isinstance(effect, SendRequest):
                self._send_request(node, effect.peer, effect.request)
            elif isinstance(effect, Reply):
                source, request = effect.token
                if not isinstance(request, BeginEpoch | EndEpoch):
                    self._send(node, source, request, effect.answer)
            elif isinstance(effect, ReadAndReply):
                source, request = effect.token
                spans = _spans(quorum.log, effect.start_offset, effect.end_offset)
                self._send(node, source, request, msgspec.structs.replace(effect.answer, spans=spans))
            elif isinstance(effect, PersistElection):
                self._voted(node, effect.election)
            elif isinstance(effect, BecameLeader):
                self._leads(node, effect)
            elif isinstance(effect, HighWatermark):
                self._commit(node, effect.offset)
            elif isinstance(effect, SecondLeader):
                self.broken(f"epoch {effect.epoch} has two leaders, {effect.known_id} and {effect.leader_id}")
            elif isinstance(effect, Fatal):
                self.broken(f"node {node}: {effect.reason}")
        self.keys[node] = quorum.key()

    def _send_request(self, node: int, peer: int, request: Request) -> None:
        is_search = isinstance(request, Fetch) and self.nodes[node].leader_id < 0
        if not is_search and not (isinstance(request, Vote) and request.is_pre):
            self._send(node, peer, request, None)

    def _send(self, source: int, target: int, request: Request, answer: Any) -> None:
        if isinstance(answer, VoteAnswer) and isinstance(request, Vote) and answer.is_granted and not request.is_pre:
            self._vote(source, request.epoch, request.candidate_id)
        what = f"{type(request).__name__}{getattr(request, 'is_pre', '')}{'' if answer is None else ' answer'}"
        self.messages[source, target, what, request.epoch] = (request, answer)

    def forget(self) -> None:
        """Drops messages that can change nothing but announce a later epoch: they are as good as lost."""
        self.messages = {
            channel: message for channel, message in self.messages.items() if self._matters(self.nodes[channel[1]], channel[3], *message)
        }

    def _matters(self, target: Quorum, epoch: int, request: Request, answer: Any) -> bool:
        if epoch < target.epoch:
            return False
        if answer is None:
            return not (isinstance(request, BeginEpoch) and epoch == target.epoch and target.leader_id >= 0)
        if isinstance(request, Vote):
            return epoch > target.epoch or isinstance(target.role, Candidate)
        return isinstance(target.role, Follower) and request == target.role.in_flight

    # -- promises

    def broken(self, what: str) -> None:
        steps, link = [], self.steps
        while link is not None:
            link, step = link
            steps.append(str(step))
        raise Broken(what + "\n" + "\n".join(reversed(steps)))

    def _voted(self, node: int, election: ElectionState) -> None:
        if election.voted_id >= 0:
            self._vote(node, election.epoch, election.voted_id)

    def _vote(self, voter: int, epoch: int, candidate: int) -> None:
        self.votes |= {(voter, epoch, candidate)}
        if sum((voter, epoch) == vote[:2] for vote in self.votes) > 1:
            self.broken(f"node {voter} votes twice in epoch {epoch}")

    def _leads(self, node: int, effect: BecameLeader) -> None:
        if any(epoch == effect.epoch and leader != node for epoch, leader in self.leaders):
            self.broken(f"epoch {effect.epoch} has two leaders")
        self.leaders = (*self.leaders, (effect.epoch, node))
        is_latest = effect.epoch > max(self.committed, default=0)  # one that is elected late has no part in what was committed since
        if is_latest and _epochs(self.nodes[node].log)[: len(self.committed)] != self.committed:
            self.broken(f"node {node} leads epoch {effect.epoch} and lacks committed entries")

    def _commit(self, node: int, offset: int) -> None:
        epochs = _epochs(self.nodes[node].log)[:offset]
        shorter = min(len(epochs), len(self.committed))
        if epochs[:shorter] != self.committed[:shorter]:
            self.broken(f"node {node} knows {epochs} as committed, another one {self.committed}")
        if offset > len(self.committed):
            holders = sum(_epochs(other.log)[:offset] == epochs and other.log.flushed_offset >= offset for other in self.nodes.values())
            if holders < VOTERS.majority:
                self.broken(f"node {node} commits up to {offset}, and {holders} voters have that on disk")
            self.committed = epochs


def _epochs(log: LogShape) -> tuple[int, ...]:
    """Returns the epoch of each entry."""
    return tuple(span.epoch for span in _spans(log, 0, log.end_offset) for _ in range(span.base_offset, span.end_offset))


def _spans(log: LogShape, start: int, end: int) -> tuple[Span, ...]:
    entries = log.epochs.entries
    ends = [offset for _, offset in entries[1:]] + [log.end_offset]
    return tuple(
        Span(epoch, max(base, start), min(until, end)) for (epoch, base), until in zip(entries, ends) if max(base, start) < min(until, end)
    )


def _boot(state: State, node: int, election: ElectionState, log: LogShape) -> None:
    state.nodes[node] = Quorum(QuorumSettings(node, VOTERS), election, log)
    state.done(node, state.nodes[node].start(state.clocks[node]))


def _steps(state: State, scope: Scope) -> Iterator[tuple[str, State]]:
    """Yields every possible next step and the state after it."""
    for channel in state.messages:
        yield f"{channel[0]} -> {channel[1]}: {channel[2]}, epoch {channel[3]}", _delivered(state, channel)
    for node in NODES:
        quorum = state.nodes[node]
        role, log = quorum.role, quorum.log
        if log.flushed_offset < log.end_offset:
            made = state.copy()
            made.done(node, made.own(node).on_flushed(log.end_offset, log.version, made.clocks[node]))
            yield f"{node} fsyncs", made
        if isinstance(role, Leader):
            if role.is_established and state.appends < scope.appends:
                made = state.copy()
                made.appends += 1
                made.done(node, made.own(node).append(quorum.epoch, 1, None, made.clocks[node]))
                yield f"{node} appends", made
        elif node in CANDIDATES and state.timeouts < scope.timeouts and (node == 1 or any(other.epoch for other in state.nodes.values())):
            made = state.copy()
            made.timeouts += 1
            made.clocks[node] = max(made.clocks[node], role.deadline_ms)
            _time_out(made, node)
            yield f"{node} times out", made
        if state.crashes < scope.crashes:
            made = state.copy()
            made.crashes += 1
            kept = log.copy()
            if kept.flushed_offset < kept.end_offset:
                kept.truncate_to(kept.flushed_offset)
            kept.version = 0
            _boot(made, node, quorum.election, kept)
            yield f"{node} dies and starts again", made


def _time_out(state: State, node: int) -> None:
    """Starts an election at a follower or a candidate, with every pre-vote granted."""
    quorum, now_ms = state.own(node), state.clocks[node]
    state.done(node, quorum.on_tick(now_ms))
    while isinstance(quorum.role, Prospective):
        log, peer = quorum.log, NODES[node % len(NODES)]
        request = Vote(quorum.epoch, node, log.last_epoch, log.end_offset, is_pre=True)
        state.done(node, quorum.on_answer(peer, request, VoteAnswer(0, quorum.epoch, -1, is_granted=True), now_ms))


def _delivered(state: State, channel: Channel) -> State:
    made = state.copy()
    source, target = channel[0], channel[1]
    request, answer = made.messages.pop(channel)
    quorum, now_ms = made.own(target), made.clocks[target]
    if answer is None:
        made.done(target, quorum.on_request((source, request), request, now_ms))
    else:
        made.done(target, quorum.on_answer(source, request, answer, now_ms))
        if isinstance(request, Fetch) and quorum.log.flushed_offset < quorum.log.end_offset:
            made.done(target, quorum.on_flushed(quorum.log.end_offset, quorum.log.version, now_ms))
    return made


def search(scope: Scope) -> tuple[int, int]:
    """Returns the number of states and of steps between them. Raises Broken when one of them breaks a promise."""
    first = State()
    for node in NODES:
        first.nodes[node] = Quorum(QuorumSettings(node, VOTERS), ElectionState(), LogShape())
    for node in NODES:
        first.done(node, first.nodes[node].start(0))
    seen = {first.key()}
    stack, steps = [first], 0
    while stack and len(seen) < scope.states_max:
        state = stack.pop()
        for name, made in _steps(state, scope):
            steps += 1
            made.forget()
            if max(quorum.epoch for quorum in made.nodes.values()) > scope.epochs:
                continue
            key = made.key()
            if key not in seen:
                seen.add(key)
                made.steps = (state.steps, name)
                stack.append(made)
    return len(seen), steps
