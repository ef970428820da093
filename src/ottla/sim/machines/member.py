"""One replica of the simulated quorum: the machine, its store, and the queue in which the machine's effects are carried out.

It is the shell of the package's contract, as small as it can be: effects are carried out one after another; one that waits for the disk
holds up those after it, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ottla.consensus.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    BecameLeader,
    Effect,
    Fatal,
    HighWatermark,
    InstallSnapshot,
    LeadershipEstablished,
    LostLeadership,
    PersistElection,
    Probe,
    ReadAndReply,
    ReadPieceAndReply,
    Reply,
    SecondLeader,
    SendRequest,
    TruncateLog,
    WriteSnapshotPiece,
)
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape
from ottla.consensus.quorum import Quorum
from ottla.consensus.roles import Leader
from ottla.consensus.settings import QuorumSettings
from ottla.sim.machines.store import Store, digest_of

SNAPSHOT_BYTES = 100
PIECE_BYTES = 60
"""A snapshot takes two pieces."""


class Member:
    __slots__ = (
        "applied_digest", "applied_offset", "armed_ms", "clock_ms", "disk_ms", "heard", "high_watermark", "incarnation", "is_stopping",
        "is_up", "led_since_ms", "log_version", "partial", "paused_until", "queue", "quorum", "settings", "store",
        "unwritten", "waits_for_disk", "world",
    )  # fmt: skip

    def __init__(self, world: Any, settings: QuorumSettings, clock_ms: int) -> None:
        self.world = world  # a QuorumWorld, whose module imports this one
        self.settings = settings
        self.clock_ms = clock_ms  # what its monotonic clock shows more than the world's
        self.store = Store()
        self.incarnation = 0
        self.is_up = False
        self.is_stopping = False
        self.paused_until = 0
        self.disk_ms = 3
        self.quorum = Quorum(settings, self.store.election, LogShape())
        self.reset()

    def reset(self) -> None:
        """Starts a new process: everything but the store is forgotten."""
        self.incarnation += 1
        self.queue: deque[Effect] = deque()
        self.waits_for_disk = False
        self.unwritten: ElectionState | None = None  # what need not be durable yet
        self.log_version = 0
        self.partial = b""
        self.armed_ms = 2**62
        self.led_since_ms = 0
        self.high_watermark = -1
        self.applied_offset = self.store.start_offset
        self.applied_digest = next(iter(self.store.snapshot_digests.values()), digest_of([]))
        self.heard: dict[int, int] = {}

    def boot(self, now_ms: int) -> None:
        self.reset()
        self.is_up, self.is_stopping = True, False
        self.quorum = Quorum(self.settings, self.store.election, self.store.shape())
        self.take(self.quorum.start(now_ms + self.clock_ms))

    def take(self, effects: tuple[Effect, ...]) -> None:
        """Carries out the effects, now or when the disk has finished earlier ones."""
        if effects:
            self.queue.extend(effects)
            if not self.waits_for_disk:
                self.drain()

    def drain(self) -> None:
        """Carries out the queue up to the first effect that has to wait."""
        queue, world = self.queue, self.world
        while queue:
            effect = queue[0]
            if type(effect) is PersistElection and not self.waits_for_disk:
                if effect.is_binding:
                    self.waits_for_disk = True
                    world.after_disk(self)
                    return
                if world.rng.random() < 0.5:
                    self.write(effect.election)
                else:
                    self.unwritten = effect.election
            queue.popleft()
            self.waits_for_disk = False
            self._carry_out(effect)

    def on_disk_done(self) -> None:
        """Records that the file of the election is durable, and goes on with the queue."""
        effect = self.queue[0]
        assert isinstance(effect, PersistElection), "it is what waits"
        self.write(effect.election)
        self.drain()

    def write(self, election: ElectionState) -> None:
        self.world.checker.on_persist(self, election)
        self.store.election, self.unwritten = election, None

    def on_sync_done(self, end_offset: int, version: int) -> None:
        """Records that an fsync of the log has ended; what need not have been durable before is durable now."""
        if self.unwritten is not None:
            self.write(self.unwritten)
        if version == self.log_version:
            self.store.durable_offset = max(self.store.durable_offset, end_offset)
        self.take(self.quorum.on_flushed(end_offset, version, self.now_ms))

    @property
    def now_ms(self) -> int:
        now_ms: int = self.world.now_ms + self.clock_ms
        return now_ms

    def _carry_out(self, effect: Effect) -> None:
        act = _ACTS.get(type(effect))
        if act is not None:
            act(self, effect)

    def _send_request(self, effect: SendRequest) -> None:
        self.world.checker.on_message(self, effect.request)
        self.world.send_request(self, effect.peer, effect.request)

    def _reply(self, effect: Reply) -> None:
        self.world.checker.on_message(self, effect.answer)
        self.world.send_answer(self, effect.token, effect.answer)

    def _read_and_reply(self, effect: ReadAndReply) -> None:
        store, start = self.store, effect.start_offset
        end = min(effect.end_offset, start + self.world.fetch_entries_max)
        answer = msgspec.structs.replace(effect.answer, spans=store.spans(start, end), records=store.between(start, end))
        self.world.checker.on_message(self, answer)
        self.world.send_answer(self, effect.token, answer)

    def _append_fetched(self, effect: AppendFetched) -> None:
        assert effect.base_offset == self.store.end_offset, "fetched records continue the log"
        self.store.entries += effect.answer.records
        self._appended(effect.base_offset, effect.log_version)

    def _append(self, effect: AppendLeaderChange | AppendRecords) -> None:
        assert effect.base_offset == self.store.end_offset, "a leader's records continue its log"
        values = (-effect.leader_id,) if isinstance(effect, AppendLeaderChange) else effect.records
        self.store.entries += [(effect.epoch, value) for value in values]
        self._appended(effect.base_offset, effect.log_version)

    def _high_watermark(self, effect: HighWatermark) -> None:
        self.world.checker.on_high_watermark(self, effect.offset)

    def _truncate(self, effect: TruncateLog) -> None:
        self.world.checker.on_truncate(self, effect.end_offset)
        self.store.truncate_to(effect.end_offset)
        self.log_version = effect.log_version

    def _became_leader(self, effect: BecameLeader) -> None:
        self.led_since_ms = self.world.now_ms
        self.world.checker.on_became_leader(self, effect)

    def _established(self, effect: LeadershipEstablished) -> None:
        self.world.checker.on_established(self, effect)

    def _lost_leadership(self, effect: LostLeadership) -> None:
        self.world.checker.on_lost(self, effect.epoch)

    def _probe(self, effect: Probe) -> None:
        self.world.probe(self, effect.peer)

    def _write_piece(self, effect: WriteSnapshotPiece) -> None:
        self.partial = effect.data if effect.position == 0 else self.partial + effect.data

    def _install(self, effect: InstallSnapshot) -> None:
        digest = int(self.partial)
        self.world.checker.on_install(self, effect.snapshot_id, digest)
        self.store.install(effect.snapshot_id, digest, SNAPSHOT_BYTES)
        self.log_version = effect.log_version
        self.applied_offset, self.applied_digest = effect.snapshot_id.end_offset, digest

    def _second_leader(self, effect: SecondLeader) -> None:
        said = f"epoch {effect.epoch} has two leaders, {effect.known_id} and {effect.leader_id}"
        self.world.checker.found(f"node {self.settings.node_id} got a message: {said}")  # no node sends false messages here

    def _fatal(self, effect: Fatal) -> None:
        self.world.checker.found(f"node {self.settings.node_id}: {effect.reason}")

    def _appended(self, base_offset: int, log_version: int) -> None:
        self.world.checker.on_append(self, base_offset)
        self.log_version = log_version
        self.world.after_sync(self, self.store.end_offset, log_version)

    def _send_piece(self, effect: ReadPieceAndReply) -> None:
        snapshot_id, position = effect.answer.snapshot_id, effect.answer.position
        assert snapshot_id is not None, "a piece is one of a snapshot"
        if snapshot_id not in self.store.snapshot_digests:  # deleted meanwhile
            return
        data = str(self.store.snapshot_digests[snapshot_id]).encode().rjust(SNAPSHOT_BYTES)
        self.world.checker.on_message(self, effect.answer)
        self.world.send_answer(self, effect.token, msgspec.structs.replace(effect.answer, data=data[position : position + PIECE_BYTES]))

    @property
    def is_leader(self) -> bool:
        return isinstance(self.quorum.role, Leader)

    def take_snapshot(self) -> bool:
        """Makes a snapshot of what is applied, and starts the log after it; False when there is nothing new."""
        store = self.store
        if self.applied_offset <= store.start_offset or self.queue:
            return False
        store.take_snapshot(self.applied_offset, self.applied_digest, SNAPSHOT_BYTES)
        self.take(self.quorum.on_snapshots(store.snapshots, store.start_offset, self.now_ms))
        return True


_ACTS: Final[Mapping[type[Effect], Callable[[Member, Any], None]]] = {
    SendRequest: Member._send_request,
    Reply: Member._reply,
    ReadAndReply: Member._read_and_reply,
    ReadPieceAndReply: Member._send_piece,
    AppendFetched: Member._append_fetched,
    AppendLeaderChange: Member._append,
    AppendRecords: Member._append,
    TruncateLog: Member._truncate,
    WriteSnapshotPiece: Member._write_piece,
    InstallSnapshot: Member._install,
    HighWatermark: Member._high_watermark,
    BecameLeader: Member._became_leader,
    LeadershipEstablished: Member._established,
    LostLeadership: Member._lost_leadership,
    Probe: Member._probe,
    SecondLeader: Member._second_leader,
    Fatal: Member._fatal,
}
"""FollowsLeader is news for others alone."""
