"""The leader: who has fetched how far, what is committed, and whether a majority still follows.

The high watermark is the largest offset that a majority of the voters has on disk: the leader's own fsynced end, and what the others said
in their fetches, which they send when they have fsynced. It moves only when it covers a record of this leader's epoch: records of older
epochs are on a majority and may be overwritten all the same (Raft 5.4.2, figure 8). Observers never count.

A new leader may know of less than its predecessor has committed, and said. So it says no high watermark until its own epoch has one:
Kafka's replicas end their process where one goes back.

A fetch that can be answered with nothing new is parked until there are records, or the replica lags in the high watermark (KIP-1166).
A leader that has not heard from a majority for 1.5 x fetch.timeout resigns: clients must not wait for one that is cut off.
"""

from __future__ import annotations

from ottla.consensus.calls import (
    BeginEpoch,
    BeginEpochAnswer,
    EndEpoch,
    EndEpochAnswer,
    EpochEnd,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
)
from ottla.consensus.effects import LeadershipEstablished, ReadAndReply, ReadPieceAndReply, Reply, Token
from ottla.consensus.roles import Leader, Parked, Progress, Resigned
from ottla.consensus.settings import NEVER
from ottla.consensus.state import QuorumState
from ottla.errors import ErrorCode

OBSERVER_SESSION_MS = 300_000
"""For so long an observer that has stopped fetching is still described."""
OBSERVERS_MAX = 1_000
"""At most so many, those that fetched last: any process may call itself an observer."""
PARKED_MAX = 1_000
"""Fetches that wait; each of them is looked at whenever there is something new."""


def on_fetch(state: QuorumState, token: Token, request: Fetch, now_ms: int) -> None:
    """Answers the fetch, or parks it."""
    role = state.role
    error = _mistake(state, request)
    if error == ErrorCode.NONE and _has_bad_numbers(request):
        error = ErrorCode.INVALID_REQUEST
    if error != ErrorCode.NONE or not isinstance(role, Leader):
        state.emit(Reply(token, refusal(state, error)))
        return
    mismatch = state.log.mismatch(request.fetch_offset, request.last_epoch)
    _note(state, role, request, None if mismatch else request.fetch_offset, now_ms)
    if mismatch is None and request.max_wait_ms > 0 and not _has_news(state, request):
        _make_room(state, role)
        role.parked[token] = Parked(request, now_ms + request.max_wait_ms)
        return
    answer(state, token, request)


def _make_room(state: QuorumState, role: Leader) -> None:
    """Answers the observer that has waited longest, where too many wait."""
    if len(role.parked) < PARKED_MAX:
        return
    for token, parked in role.parked.items():
        if parked.request.replica_id not in role.voters:
            del role.parked[token]
            answer(state, token, parked.request)
            return


def on_fetch_snapshot(state: QuorumState, token: Token, request: FetchSnapshot, now_ms: int) -> None:
    """Sends a piece, or the error that the snapshot or the position does not exist."""
    role = state.role
    error = _mistake(state, request)
    if error == ErrorCode.NONE and request.max_bytes <= 0:
        error = ErrorCode.INVALID_REQUEST
    size = 0
    if error == ErrorCode.NONE and isinstance(role, Leader):
        _note(state, role, request, None, now_ms)
        sizes = dict(state.log.snapshots)
        if request.snapshot_id not in sizes:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        else:
            size = sizes[request.snapshot_id]
            error = ErrorCode.NONE if 0 <= request.position < size else ErrorCode.POSITION_OUT_OF_RANGE
    reply = FetchSnapshotAnswer(error, state.epoch, state.leader_id, request.snapshot_id, size, request.position)
    state.emit(Reply(token, reply) if error else ReadPieceAndReply(token, reply, min(request.max_bytes, state.settings.piece_bytes_max)))


def _has_bad_numbers(request: Fetch) -> bool:
    is_of_the_log = request.fetch_offset >= 0 and 0 <= request.last_epoch <= request.epoch
    return not is_of_the_log or request.max_wait_ms < 0 or request.max_bytes < 0


def _mistake(state: QuorumState, request: Fetch | FetchSnapshot) -> ErrorCode:
    if request.cluster_id is not None and request.cluster_id != state.settings.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(state.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def refusal(state: QuorumState, error: int) -> FetchAnswer:
    return FetchAnswer(error, state.epoch, state.leader_id, _said_high_watermark(state), state.log.start_offset)


def _replica(request: Fetch | FetchSnapshot) -> tuple[int, bytes]:
    return request.replica_id, request.replica_directory


def _note(state: QuorumState, role: Leader, request: Fetch | FetchSnapshot, end_offset: int | None, now_ms: int) -> None:
    """Notes that the replica lives, and has everything below ``end_offset``."""
    replica_id, directory_id = _replica(request)
    leader_end = state.log.end_offset
    if replica_id != state.settings.node_id and state.settings.voters.is_voter(replica_id, directory_id):
        before = role.voters[replica_id]
        begin_ms = now_ms + state.settings.fetch_timeout_ms // 2
        role.voters[replica_id] = _moved(before, end_offset, leader_end, now_ms, directory_id, begin_ms)
        if end_offset is not None and end_offset > state.high_watermark:
            advance(state, role)
    elif replica_id >= 0:
        before = role.observers.pop((replica_id, directory_id), Progress())
        role.observers[replica_id, directory_id] = _moved(before, end_offset, leader_end, now_ms, directory_id, NEVER)
        _forget_observers(role.observers, now_ms)


def _forget_observers(observers: dict[tuple[int, bytes], Progress], now_ms: int) -> None:
    """Forgets observers that have stopped fetching. They are in the order of their last fetches."""
    while True:
        key, longest_silent = next(iter(observers.items()))
        if len(observers) <= OBSERVERS_MAX and longest_silent.fetched_ms > now_ms - OBSERVER_SESSION_MS:
            return
        del observers[key]


def _moved(before: Progress, end_offset: int | None, leader_end: int, now_ms: int, directory_id: bytes, begin_ms: int) -> Progress:
    if end_offset is None:
        return Progress(before.end_offset, now_ms, before.caught_up_ms, leader_end, begin_ms, directory_id)
    caught_up_ms = before.caught_up_ms
    if end_offset >= leader_end:
        caught_up_ms = now_ms
    elif end_offset >= before.leader_end_offset >= 0:
        caught_up_ms = max(caught_up_ms, before.fetched_ms)
    return Progress(end_offset, now_ms, caught_up_ms, leader_end, begin_ms, directory_id)


def advance(state: QuorumState, role: Leader) -> None:
    """Commits what a majority of the voters has on disk, if that covers a record of this epoch."""
    ends = sorted((state.log.flushed_offset, *(progress.end_offset for progress in role.voters.values())), reverse=True)
    offset = ends[state.settings.voters.majority - 1]
    if offset <= role.start_offset or not state.advance_high_watermark(offset):
        return
    if not role.is_established:
        role.is_established = True
        state.emit(LeadershipEstablished(state.epoch, offset))
    wake(state, role)


def wake(state: QuorumState, role: Leader) -> None:
    """Answers parked fetches for which there is news."""
    for token, parked in list(role.parked.items()):
        if _has_news(state, parked.request):
            del role.parked[token]
            answer(state, token, parked.request)


def _has_news(state: QuorumState, request: Fetch) -> bool:
    return request.fetch_offset < state.log.end_offset or request.high_watermark < _said_high_watermark(state)


def _said_high_watermark(state: QuorumState) -> int:
    """Returns what this leader says is committed; -1 before it has committed a record of its epoch."""
    role = state.role
    return state.high_watermark if isinstance(role, Leader) and role.is_established else -1


def answer(state: QuorumState, token: Token, request: Fetch) -> None:
    """Answers the fetch with what there is: records, a divergence, a snapshot, or the high watermark alone."""
    log = state.log
    mismatch = log.mismatch(request.fetch_offset, request.last_epoch)
    diverging = mismatch if isinstance(mismatch, EpochEnd) else None
    snapshot_id = None if isinstance(mismatch, EpochEnd) else mismatch
    reply = FetchAnswer(0, state.epoch, state.leader_id, _said_high_watermark(state), log.start_offset, diverging, snapshot_id)
    if mismatch is None and request.fetch_offset < log.end_offset and request.max_bytes > 0:
        bytes_max = min(request.max_bytes, state.settings.fetch_bytes_max)
        state.emit(ReadAndReply(token, reply, request.fetch_offset, log.end_offset, bytes_max))
    else:
        state.emit(Reply(token, reply))


def answer_orphans(state: QuorumState) -> None:
    """Refuses what was parked when leadership was lost, with what is known of the new leader."""
    for token, parked in state.orphans.items():
        is_old = parked.request.epoch < state.epoch
        error = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NOT_LEADER_OR_FOLLOWER
        state.emit(Reply(token, refusal(state, error)))
    state.orphans = {}


def on_begin_answer(state: QuorumState, peer: int, request: BeginEpoch, reply: BeginEpochAnswer, now_ms: int) -> None:
    """Takes a voter's answer: it knows who leads, or knows better."""
    if state.learn(reply.leader_id, reply.epoch, now_ms):
        return
    role = state.role
    if isinstance(role, Leader) and request.epoch == state.epoch:
        _begin_again(role, peer, now_ms + state.settings.fetch_timeout_ms // 2)


def on_end_answer(state: QuorumState, peer: int, request: EndEpoch, reply: EndEpochAnswer, now_ms: int) -> None:
    """Takes a voter's answer: it knows that this replica has resigned."""
    if state.learn(reply.leader_id, reply.epoch, now_ms):
        return
    role = state.role
    if isinstance(role, Resigned) and request.epoch == state.epoch:
        role.tell_ms.pop(peer, None)


def _begin_again(role: Leader, peer: int, begin_ms: int) -> None:
    before = role.voters[peer]
    role.voters[peer] = Progress(before.end_offset, before.fetched_ms, before.caught_up_ms, before.leader_end_offset, begin_ms)


def tell(state: QuorumState, role: Leader | Resigned, now_ms: int) -> None:
    """Sends a message to voters that may not know of the leader, or of its resignation."""
    settings = state.settings
    if isinstance(role, Resigned):
        for peer, due_ms in role.tell_ms.items():
            if due_ms <= now_ms:
                role.tell_ms[peer] = now_ms + settings.request_timeout_ms
                state.send(peer, EndEpoch(state.epoch, settings.node_id, role.successors, settings.cluster_id))
        return
    for peer, progress in role.voters.items():
        if progress.begin_ms <= now_ms:
            _begin_again(role, peer, now_ms + min(settings.request_timeout_ms, settings.fetch_timeout_ms // 2))
            state.send(peer, BeginEpoch(state.epoch, settings.node_id, peer, settings.voters.directories[peer], settings.cluster_id))


def on_connection_lost(state: QuorumState, role: Leader | Resigned, peer: int, now_ms: int) -> None:
    """Sends again, after a while, what was sent to the peer."""
    if isinstance(role, Resigned):
        if peer in role.tell_ms:
            role.tell_ms[peer] = min(role.tell_ms[peer], state.retry_ms(role.since_ms, now_ms))
    elif peer in role.voters:
        before = role.voters[peer]
        _begin_again(role, peer, min(before.begin_ms, state.retry_ms(before.fetched_ms, now_ms)))


def expire(state: QuorumState, role: Leader, now_ms: int) -> None:
    """Answers parked fetches in time; without a majority that fetches, the leader resigns."""
    if quorum_deadline_ms(state, role) <= now_ms:
        state.become_resigned(now_ms)
        return
    for token, parked in list(role.parked.items()):
        if parked.deadline_ms <= now_ms:
            del role.parked[token]
            answer(state, token, parked.request)


def quorum_deadline_ms(state: QuorumState, role: Leader) -> int:
    needed = state.settings.voters.majority - 1  # besides the leader
    if needed == 0:
        return NEVER
    fetched = sorted([progress.fetched_ms for progress in role.voters.values()], reverse=True)
    return fetched[needed - 1] + state.settings.check_quorum_ms


def next_ms(state: QuorumState, role: Leader) -> int:
    due_ms = quorum_deadline_ms(state, role)
    for progress in role.voters.values():
        if progress.begin_ms < due_ms:
            due_ms = progress.begin_ms
    for parked in role.parked.values():
        if parked.deadline_ms < due_ms:
            due_ms = parked.deadline_ms
    return due_ms
