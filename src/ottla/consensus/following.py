"""The follower, and a replica that looks for a leader.

It fetches, cuts what the leader does not have, and fetches a snapshot where the log is too
old.

One request is on its way at a time, and a voter sends the next one only when everything before its fetch offset is on disk: the offset
says so to the leader. While its disk keeps it waiting it gives signs of life: fetches from what it has on disk, of nothing. A leader is
not to be replaced because its voters have slow disks. An answer counts only if it answers the request on its way. No cut goes below the
high watermark: what is committed stays.

The leader counts as lost when it has answered no fetch for fetch.timeout, when a probe has found its process dead, or when it has said
that it resigned. In the last two cases the voters take turns, so that they do not
split the vote: the one whose turn is first starts at once.
"""

from __future__ import annotations

from ottla.consensus.calls import (
    BeginEpoch,
    BeginEpochAnswer,
    EndEpoch,
    EndEpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
)
from ottla.consensus.effects import AppendFetched, InstallSnapshot, Probe, Reply, Token, TruncateLog, WriteSnapshotPiece
from ottla.consensus.roles import Download, Follower, LeaderLoss, Prospective, Unattached
from ottla.consensus.settings import NEVER
from ottla.consensus.state import QuorumState
from ottla.errors import ErrorCode

_STAGGER_JITTER_MS = 5


def on_begin_epoch(state: QuorumState, token: Token, request: BeginEpoch, now_ms: int) -> None:
    """Follows the leader that the request names, unless a later epoch is known."""
    settings = state.settings
    error = ErrorCode.NONE
    if request.cluster_id is not None and request.cluster_id != settings.cluster_id:
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif request.leader_id not in settings.voters or request.leader_id == settings.node_id:
        error = ErrorCode.INVALID_REQUEST
    elif request.voter_id >= 0 and not settings.is_named(request.voter_id, request.voter_directory):
        error = ErrorCode.INVALID_VOTER_KEY
    elif request.epoch < state.epoch or state.contradicts(request.leader_id, request.epoch):
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif not state.is_believed(request.epoch, now_ms):
        error = ErrorCode.INVALID_REQUEST
    else:
        role = state.role
        is_new = state.learn(request.leader_id, request.epoch, now_ms)
        if state.loss is LeaderLoss.SILENT:  # it is not: this replica speaks for it again before the first fetch is answered
            state.loss = LeaderLoss.NONE
        if not is_new and isinstance(role, Prospective) and not state.is_fatal:
            if state.loss < LeaderLoss.DEAD:
                state.become_follower(request.leader_id, request.epoch, now_ms)
            elif state.loss is LeaderLoss.DEAD:  # said before it died, or the proof was none: a firewall refuses, too
                state.emit(Probe(request.leader_id))
    state.emit(Reply(token, BeginEpochAnswer(error, state.epoch, state.leader_id)))


def on_end_epoch(state: QuorumState, token: Token, request: EndEpoch, now_ms: int) -> None:
    """Takes the leader's resignation: the replicas that it prefers are the first to start an election."""
    settings = state.settings
    error = ErrorCode.NONE
    if request.cluster_id is not None and request.cluster_id != settings.cluster_id:
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif request.leader_id not in settings.voters or request.leader_id == settings.node_id:
        error = ErrorCode.INVALID_REQUEST
    elif request.epoch < state.epoch or state.contradicts(request.leader_id, request.epoch):
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif not state.is_believed(request.epoch, now_ms):
        error = ErrorCode.INVALID_REQUEST
    else:
        if request.epoch > state.epoch:
            state.become_unattached(request.epoch, now_ms)
        successors = request.successors
        turn = successors.index(settings.node_id) if settings.node_id in successors else len(successors)
        if state.leader_id == request.leader_id:
            leader_is_lost(state, LeaderLoss.RESIGNED, turn, settings.stagger_ms, now_ms)
        elif isinstance(state.role, Unattached) and state.is_voter:
            state.role.deadline_ms = min(state.role.deadline_ms, _turn_ms(state, turn, settings.stagger_ms, now_ms))
    state.emit(Reply(token, EndEpochAnswer(error, state.epoch, state.leader_id)))


def leader_is_lost(state: QuorumState, loss: LeaderLoss, turn: int, stagger_ms: int, now_ms: int) -> None:
    """Takes first-hand evidence that the leader of the epoch no longer leads."""
    role = state.role
    state.loss = max(state.loss, loss)
    if not state.is_voter:
        state.become_unattached(state.epoch, now_ms)
    elif isinstance(role, Follower):
        role.start_ms = min(role.start_ms, _turn_ms(state, turn, stagger_ms, now_ms))
        role.fetch_ms, role.in_flight, role.download = NEVER, None, None
    elif isinstance(role, Prospective):  # those who refused may know by now, too
        role.ask_ms |= dict.fromkeys(role.refused, now_ms)
        role.refused = frozenset()


def _turn_ms(state: QuorumState, turn: int, stagger_ms: int, now_ms: int) -> int:
    return now_ms + turn * stagger_ms + state.settings.jitter(_STAGGER_JITTER_MS, state.epoch, now_ms)


def on_peer_dead(state: QuorumState, peer: int, rtt_ms: int, now_ms: int) -> None:
    """Takes a probe's finding that the process of the peer is dead."""
    if peer == state.leader_id and isinstance(state.role, Follower | Prospective):
        settings = state.settings
        turn = settings.voters.rank(settings.node_id, without=peer, epoch=state.epoch) if state.is_voter else 0
        leader_is_lost(state, LeaderLoss.DEAD, turn, max(settings.stagger_ms, 4 * rtt_ms), now_ms)


def on_peer_alive(state: QuorumState, peer: int, now_ms: int) -> None:
    """Takes an answered probe: no election for that reason. A leader that has resigned stays so."""
    role = state.role
    if peer == state.leader_id and state.loss is LeaderLoss.DEAD:
        state.loss = LeaderLoss.NONE
        if isinstance(role, Follower):
            role.start_ms, role.fetch_ms = NEVER, now_ms
        elif isinstance(role, Prospective):
            state.become_follower(peer, state.epoch, now_ms)


def on_connection_lost(state: QuorumState, role: Follower | Unattached, peer: int, now_ms: int) -> None:
    """Takes the loss of a request on its way to the peer; if the peer leads, it is probed."""
    again_ms = now_ms + state.settings.retry_backoff_ms
    if isinstance(role, Unattached):
        role.ask_ms = min(role.ask_ms, again_ms)
    elif peer == role.leader_id and state.loss < LeaderLoss.DEAD:
        role.in_flight, role.fetch_ms = None, again_ms
        state.emit(Probe(peer))


def fetch(state: QuorumState, role: Follower | Unattached, now_ms: int) -> None:
    """Sends the next request when it is due: for records, for a piece of a snapshot, or in search of a leader."""
    settings = state.settings
    if next_fetch_ms(state, role) > now_ms:
        return
    if isinstance(role, Unattached):
        voters = settings.voters.others(settings.node_id)
        peer = voters[(state.search_count + settings.seed) % len(voters)]
        state.search_count += 1
        role.ask_ms = now_ms + state.search_delay_ms()
        state.send(peer, _fetch(state, max_wait_ms=0))
        return
    role.fetch_ms = now_ms + settings.request_timeout_ms
    if is_waiting_for_disk(state):
        role.in_flight = _sign_of_life(state)
    elif role.download is None:
        role.in_flight = _fetch(state, max_wait_ms=settings.fetch_wait_ms)
    else:
        snapshot_id, position = role.download.snapshot_id, role.download.position
        role.in_flight = FetchSnapshot(
            state.epoch, settings.node_id, snapshot_id, position, settings.piece_bytes_max,
            settings.fetched_directory_id, settings.cluster_id, state.next_number(),
        )  # fmt: skip
    state.send(role.leader_id, role.in_flight)


def _fetch(state: QuorumState, *, max_wait_ms: int) -> Fetch:
    settings, log = state.settings, state.log
    return Fetch(
        state.epoch, settings.node_id, log.end_offset, log.last_epoch, state.high_watermark, max_wait_ms, settings.fetch_bytes_max,
        settings.fetched_directory_id, settings.cluster_id, state.next_number(),
    )  # fmt: skip


def _sign_of_life(state: QuorumState) -> Fetch:
    settings, log = state.settings, state.log
    return Fetch(
        state.epoch, settings.node_id, log.flushed_offset, log.flushed_epoch, state.high_watermark, 0, 0, settings.fetched_directory_id,
        settings.cluster_id, state.next_number(),
    )  # fmt: skip


def is_waiting_for_disk(state: QuorumState) -> bool:
    return state.is_voter and state.log.flushed_offset < state.log.end_offset


def next_fetch_ms(state: QuorumState, role: Follower | Unattached) -> int:
    is_waiting = is_waiting_for_disk(state)
    if isinstance(role, Follower):
        return max(role.fetch_ms, role.deadline_ms - state.settings.sign_of_life_ms) if is_waiting else role.fetch_ms
    if is_waiting:
        return NEVER  # the node that is asked for the leader may lead itself, and counts each request as a sign of life
    return role.ask_ms if state.settings.voters.others(state.settings.node_id) else NEVER


def on_fetch_answer(
    state: QuorumState, peer: int, request: Fetch | FetchSnapshot, answer: FetchAnswer | FetchSnapshotAnswer, now_ms: int
) -> None:
    """Takes the answer: records are appended, or what the leader lacks is cut, or a snapshot is fetched and installed."""
    state.learn(answer.leader_id, answer.epoch, now_ms)
    role = state.role
    if answer.epoch != state.epoch or not isinstance(role, Follower) or role.leader_id != peer or request != role.in_flight:
        return
    role.in_flight = None
    if answer.error != ErrorCode.NONE:
        _refused(state, role, answer.error, now_ms)
        return
    state.search_count = 0
    if state.loss is LeaderLoss.SILENT:
        state.loss = LeaderLoss.NONE
    role.fetch_ms, role.deadline_ms = now_ms, state.fetch_deadline_ms(peer, now_ms)
    if isinstance(answer, FetchSnapshotAnswer):
        _on_piece(state, role, answer, now_ms)
    elif isinstance(request, Fetch) and request.max_bytes == 0:
        pass  # it says that the leader lives; beyond what is on disk here, the logs may differ
    elif answer.diverging is not None:
        _truncate(state, role, answer, now_ms)
    elif answer.snapshot_id is not None:
        _begin_download(state, role, answer, now_ms)
    else:
        _append(state, role, answer, now_ms)


def _refused(state: QuorumState, role: Follower, error: int, now_ms: int) -> None:
    role.download, role.fetch_ms = None, now_ms + state.settings.retry_backoff_ms
    if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:  # in its own words; a leader never comes back in the same epoch
        settings = state.settings
        turn = settings.voters.rank(settings.node_id, without=role.leader_id, epoch=state.epoch) if state.is_voter else 0
        leader_is_lost(state, LeaderLoss.RESIGNED, turn, settings.stagger_ms, now_ms)


def _truncate(state: QuorumState, role: Follower, answer: FetchAnswer, now_ms: int) -> None:
    assert answer.diverging is not None, "the caller has looked"
    log, end_offset = state.log, state.log.parting_point(answer.diverging)
    if end_offset < state.high_watermark:
        state.fail(f"the leader {role.leader_id} of epoch {state.epoch} lacks committed records from offset {end_offset} on")
    elif end_offset >= log.end_offset:  # a mistake of the leader's: the same fetch must not be repeated without a pause
        role.fetch_ms = now_ms + state.settings.retry_backoff_ms
    else:
        log.truncate_to(end_offset)
        state.emit(TruncateLog(end_offset, log.version))


def _begin_download(state: QuorumState, role: Follower, answer: FetchAnswer, now_ms: int) -> None:
    """Starts a download, never of a snapshot that is older than the log."""
    snapshot_id, log = answer.snapshot_id, state.log
    assert snapshot_id is not None, "the caller has looked"
    if (snapshot_id.epoch, snapshot_id.end_offset) > (log.last_epoch, log.end_offset) and snapshot_id.end_offset > state.high_watermark:
        role.download = Download(snapshot_id)
    else:
        role.fetch_ms = now_ms + state.settings.retry_backoff_ms


def _on_piece(state: QuorumState, role: Follower, answer: FetchSnapshotAnswer, now_ms: int) -> None:
    download, size = role.download, len(answer.data)
    if download is None or (answer.snapshot_id, answer.position) != (download.snapshot_id, download.position) or size == 0:
        role.download, role.fetch_ms = None, now_ms + state.settings.retry_backoff_ms
        return
    position = download.position + size
    state.emit(WriteSnapshotPiece(download.snapshot_id, download.position, answer.data))
    if position < answer.size:
        role.download = Download(download.snapshot_id, position)
        return
    role.download = None
    state.log.install(download.snapshot_id, answer.size)
    state.emit(InstallSnapshot(download.snapshot_id, state.log.version))
    state.advance_high_watermark(download.snapshot_id.end_offset)


def _append(state: QuorumState, role: Follower, answer: FetchAnswer, now_ms: int) -> None:
    log, base_offset, epoch = state.log, state.log.end_offset, state.log.last_epoch
    end_offset = base_offset
    for span in answer.spans:
        if span.base_offset != end_offset or span.end_offset <= end_offset or not epoch <= span.epoch <= state.epoch:
            role.fetch_ms = now_ms + state.settings.retry_backoff_ms  # not what was asked for
            return
        end_offset, epoch = span.end_offset, span.epoch
    if end_offset > base_offset:
        for span in answer.spans:
            log.append(span.epoch, span.end_offset)
        state.emit(AppendFetched(base_offset, end_offset, answer, log.version))
    state.advance_high_watermark(min(answer.high_watermark, log.end_offset))


def expire(state: QuorumState, role: Follower | Unattached, now_ms: int) -> None:
    """Starts an election, perhaps: the leader has been silent for too long, or it is this voter's turn."""
    if isinstance(role, Follower) and role.start_ms > now_ms:
        if is_waiting_for_disk(state) and role.in_flight is None:  # it has not asked: the silence is its own
            role.deadline_ms = state.fetch_deadline_ms(role.leader_id, now_ms)
            return
        state.loss = max(state.loss, LeaderLoss.SILENT)
    if state.is_voter:
        state.become_prospective(now_ms)
    else:
        state.become_unattached(state.epoch, now_ms)


def next_ms(state: QuorumState, role: Follower | Unattached) -> int:
    due_ms = min(role.deadline_ms, next_fetch_ms(state, role))
    return min(due_ms, role.start_ms) if isinstance(role, Follower) else due_ms
