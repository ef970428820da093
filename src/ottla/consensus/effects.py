"""The effects that the machine wants carried out. The shell carries effects out one after another, in the order in which they were
returned.

That order is the safety of the protocol, as in etcd-raft's ``Ready``: a vote is durable before it is announced. For each effect:

=====================  ==============================================================================================================
PersistElection        written to ``quorum-state``. A binding one is fsynced before any later effect is started; one that is not binding
                       may be written whenever the shell likes, and be replaced by a later one
TruncateLog,           done and durable before any later effect is started. No report of an fsync that started before it may follow it
InstallSnapshot        under the new ``log_version`` (see ``Quorum.on_flushed``)
AppendLeaderChange,    readable before any later effect is started, durable some time later: the shell fsyncs, and reports
AppendRecords,         ``on_flushed(end_offset, log_version)`` with the values of the last effect that the fsync covers
AppendFetched
WriteSnapshotPiece     written before any later effect is started; position 0 starts a new file and forgets an unfinished one
ReadAndReply           read before any later effect is started, since that may truncate the log
SendRequest, Reply,    sent, without waiting; the answer comes back by ``on_answer``, a broken connection by ``on_connection_lost``
ReadPieceAndReply
others                 reported to those who follow the machine, without waiting
=====================  ==============================================================================================================
"""

from __future__ import annotations

from typing import Any

import msgspec

from ottla.consensus.calls import Answer, FetchAnswer, FetchSnapshotAnswer, Request, SnapshotId
from ottla.consensus.election_state import ElectionState

Token = Any
"""A name of the shell for a request that waits for its answer."""


class Effect(msgspec.Struct, frozen=True):
    """An effect: frozen, compared by value. The garbage collector tracks it: a token may lead back to the owner of the queue."""


class PersistElection(Effect, frozen=True):
    """The epoch, the vote and the leader survive a crash."""

    election: ElectionState
    is_binding: bool


class TruncateLog(Effect, frozen=True):
    """The log ends at ``end_offset``; images of what was cut are dropped. Never below the high watermark."""

    end_offset: int
    log_version: int


class InstallSnapshot(Effect, frozen=True):
    """The file written last is a snapshot, the log before it is empty and starts at its end."""

    snapshot_id: SnapshotId
    log_version: int


class AppendLeaderChange(Effect, frozen=True):
    """The first record of an epoch is a control record that says who leads, who votes and who voted for it."""

    epoch: int
    base_offset: int
    end_offset: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]
    log_version: int


class AppendRecords(Effect, frozen=True):
    """An effect that writes the records of ``Quorum.append`` to the log at ``base_offset``."""

    epoch: int
    base_offset: int
    end_offset: int
    records: Any
    log_version: int


class AppendFetched(Effect, frozen=True):
    """Records of the leader are in the log as they came, at the offsets that they have."""

    base_offset: int
    end_offset: int
    answer: FetchAnswer
    log_version: int


class WriteSnapshotPiece(Effect, frozen=True):
    """The next bytes of the snapshot that is being fetched."""

    snapshot_id: SnapshotId
    position: int
    data: Any


class SendRequest(Effect, frozen=True):
    """The request is on its way to that voter."""

    peer: int
    request: Request


class Reply(Effect, frozen=True):
    """A request is answered."""

    token: Token
    answer: Answer


class ReadAndReply(Effect, frozen=True):
    """A fetch is answered with records from ``start_offset`` to ``end_offset`` at most: at least one batch, whatever ``max_bytes``."""

    token: Token
    answer: FetchAnswer
    start_offset: int
    end_offset: int
    max_bytes: int


class ReadPieceAndReply(Effect, frozen=True):
    """A FetchSnapshot is answered with at most ``max_bytes`` of the snapshot from ``answer.position`` on."""

    token: Token
    answer: FetchSnapshotAnswer
    max_bytes: int


class HighWatermark(Effect, frozen=True):
    """Everything below ``offset`` is committed: it may be applied and announced."""

    offset: int


class FollowsLeader(Effect, frozen=True):
    """The leader of the epoch is known; -1: no leader is known."""

    epoch: int
    leader_id: int


class BecameLeader(Effect, frozen=True):
    """Elected. What it commits from ``start_offset`` on is of its own epoch; nothing may be decided yet."""

    epoch: int
    start_offset: int


class LeadershipEstablished(Effect, frozen=True):
    """The epoch's LeaderChange is committed: with everything below ``offset`` applied, the controller may act, and ``append`` is open."""

    epoch: int
    offset: int


class LostLeadership(Effect, frozen=True):
    """No longer leader of the epoch: parked decisions fail, uncommitted images are dropped when the log is truncated."""

    epoch: int


class Probe(Effect, frozen=True):
    """A request to probe whether the peer's process lives, by connecting to it (refused twice is dead); ``on_peer_dead`` or
    ``on_peer_alive``.
    """

    peer: int


class SecondLeader(Effect, frozen=True):
    """A message claims that ``leader_id`` leads the epoch, which ``known_id`` leads; nothing has changed. Reported, and counted."""

    epoch: int
    known_id: int
    leader_id: int


class Fatal(Effect, frozen=True):
    """A promise of the protocol was found broken: the process must stop before it does harm. The machine does nothing from then on."""

    reason: str
