"""This node's replica of the metadata log: the shell of the quorum machine (``ottla.consensus``), and the images that its records make.

Events go into the machine at once; its effects stand in one queue and are carried out in order, from the head. An fsync runs beside
the queue, as many appends share one. What is committed is applied beside it as well: a leader has the images already that its
decisions made, others read the log. Followers of the metadata get each newer image, and each change of leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.metadata.answering import DeleteLog, has_fetched, with_piece, with_records
from ottla.broker.metadata.applied import AppliedImages, not_controller
from ottla.broker.metadata.log import MetadataLog, is_framed, shape_of
from ottla.broker.metadata.neighbours import MetadataFollower
from ottla.broker.metadata.opened_log import OpenedLog
from ottla.broker.metadata.strangers import Strangers
from ottla.broker.part import Part
from ottla.broker.tasks import eager
from ottla.broker.tasks.single_flight import SingleFlight
from ottla.consensus import effects as wanted
from ottla.consensus.calls import Answer, Request
from ottla.consensus.quorum import Quorum
from ottla.consensus.settings import NEVER
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.loggers import get_logger
from ottla.messages.metadata_records import AbortTransactionRecord
from ottla.metadata.image import ClusterImage
from ottla.metadata.record_versions import METADATA_VERSION, NEWEST, written_at
from ottla.ports import TimerHandle, World
from ottla.storage.disk_errors import PASSING
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored

if TYPE_CHECKING:
    from ottla.broker.metadata.voters import Voters  # a lone broker starts without

log = get_logger(__name__)


class MetadataReplica(Part):
    """A replica of the metadata log, at work after ``begin``. ``voters`` reach the other voters; None for the only one."""

    def __init__(self, world: World, opened: OpenedLog, follower: MetadataFollower, voters: Voters | None = None) -> None:
        log, quorum, image, self._snapshot_due = opened
        self._world = world
        self._log = log
        self._quorum = quorum
        self.last_leader_id = NO_LEADER  # the last that was known
        self._follower = follower
        self._voters = voters
        self._applied = AppliedImages(log, image, self._on_committed)
        self.images: Final = self._applied.images
        self._queue: deque[wanted.Effect] = deque()
        self._is_carrying_out = False
        self._high_watermark = 0
        self._established: tuple[int, int] | None = None  # this node leads that epoch; from that offset on the log is its own
        self._is_active = False
        self._unsynced: tuple[int, int] | None = None  # end offset and log version of what is written and not yet durable
        self._is_sync_due = self._is_apply_due = False
        self._sync = SingleFlight(self._sync_once)
        self._apply = SingleFlight(self._apply_once)
        self._snapshot = SingleFlight(self._snapshot_once)
        self._timer: TimerHandle | None = None
        self._timer_ms = NEVER
        self.strangers = Strangers(quorum.settings)
        self._is_stopped = False
        self._failure: BaseException | None = None
        self.absent: Final = frozenset[int]()  # who is registered stays so

    # -- what is known

    @property
    def image(self) -> ClusterImage:
        """The newest committed image that this node has."""
        return self._applied.committed

    @property
    def draft(self) -> ClusterImage:
        """After every decision that this node has taken; while it is active."""
        return self._applied.draft

    @property
    def quorum(self) -> Quorum:
        """To be looked at only."""
        return self._quorum

    @property
    def leader_id(self) -> int:
        """The active controller as far as this node knows; -1 when it knows none."""
        return self._quorum.leader_id

    @property
    def is_electing(self) -> bool:
        """Whether an active controller is looked for."""
        return self._quorum.is_electing

    @property
    def is_active(self) -> bool:
        """Whether this node's controller may decide."""
        return self._is_active

    @property
    def log(self) -> MetadataLog:
        return self._log

    def has_fetched(self, node_id: int) -> bool:
        return has_fetched(self._quorum, node_id)

    async def first_image(self) -> ClusterImage:
        return await self._log.bootstrap_image()

    # -- life

    def begin(self) -> None:
        """Starts to take part in the quorum."""
        self._feed(self._quorum.start(self._now_ms()))

    async def stop(self) -> None:
        """Stops: a leader hands over, as far as it can reach the others; what was written is made durable and closed."""
        self._feed(self._quorum.stop(self._now_ms()))
        # Voters that have not heard by then start an election of their own about as soon.
        deadline_ms = self._now_ms() + self._quorum.settings.election_timeout_ms
        while not self._quorum.has_handed_over and self._now_ms() < deadline_ms:
            await asyncio.sleep(0.005)
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        while self._is_carrying_out:  # it may wait for the disk
            await asyncio.sleep(0.001)
        await self._sync()
        await self._apply()
        await self._snapshot(_nothing)
        await self._log.close()

    # -- deciding

    def append(self, records: Sequence[Stored]) -> int:
        """Decides the records, and returns where they end. ``committed`` waits for them. NOT_CONTROLLER unless this node is active."""
        if self._failure is not None:
            raise self._failure
        quorum = self._quorum
        if not self._is_active or not quorum.is_established:  # the second is known first
            raise not_controller()
        level = self._applied.draft.features.get(METADATA_VERSION, NEWEST)  # a new cluster's first record says which
        records = written_at(records, level)
        count = len(records) + (2 if is_framed(records, level) else 0)
        end_offset = quorum.log.end_offset + count
        self._applied.decide(records, end_offset=end_offset, epoch=quorum.epoch)
        self._feed(quorum.append(quorum.epoch, count, (level, records), self._now_ms()))
        return end_offset

    async def committed(self, end_offset: int | None = None) -> None:
        """Waits until what ends there, or all that was decided, is committed and in the image. NOT_CONTROLLER when that is not known."""
        await self._applied.reached(end_offset)

    # -- requests of other replicas

    def on_request(self, request: Request, on_answer: Callable[[Answer], None]) -> wanted.Token:
        """Takes a request; the answer comes by callback. The token is for ``on_request_dropped``."""
        self._feed(self._quorum.on_request(on_answer, request, self._now_ms()))
        return on_answer

    def on_request_dropped(self, token: wanted.Token) -> None:
        """Drops the request, whose answer is no longer waited for."""
        self._feed(self._quorum.on_request_dropped(token, self._now_ms()))

    # -- the machine

    def _now_ms(self) -> int:
        return self._world.clock.monotonic_ms()

    def _feed(self, effects: tuple[wanted.Effect, ...]) -> None:
        """Queues the effects, and watches the machine's next deadline."""
        self._queue.extend(effects)
        if self._queue and not self._is_carrying_out:
            self._is_carrying_out = True
            self._world.timers.call_later_ms(0, self._carry_out_soon)  # what this turn of the loop decides is written together
        deadline_ms = self._quorum.next_deadline_ms()
        if deadline_ms != self._timer_ms and not self._is_stopped:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._timer_ms = deadline_ms
            if deadline_ms != NEVER:
                self._timer = self._world.timers.call_later_ms(max(0, deadline_ms - self._now_ms()), self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer, self._timer_ms = None, NEVER
        if not self._is_stopped:
            self._feed(self._quorum.on_tick(self._now_ms()))

    def _carry_out_soon(self) -> None:
        eager.run(self._carry_out_all(), lambda _, error: self._ended(error))

    def _ended(self, error: BaseException | None) -> None:
        """Ends the work of effects, for what the machine was promised could not be done: later effects must not be announced."""
        if error is not None and not self._is_stopped:
            self._is_stopped = True
            self._failure = error
            self._applied.fail(error)
            reason = error.message if isinstance(error, KafkaError) else repr(error)
            log.error("metadata_replica_failed", reason=reason, exc_info=not isinstance(error, OttlaError | OSError) and error)
            self._lose_leadership()
            self._follower.on_fatal(f"the metadata log cannot go on: {reason}", error)

    async def _carry_out_all(self) -> None:
        try:
            while self._queue:
                if self._is_stopped and not isinstance(self._queue[0], wanted.Reply | wanted.SendRequest):
                    self._queue.popleft()
                    continue
                await self._carry_out(self._queue.popleft())
        finally:
            self._is_carrying_out = False  # not later: those who add to the queue rely on it

    async def _carry_out(self, effect: wanted.Effect) -> None:
        match effect:
            case wanted.SendRequest():
                self._send(effect)
            case wanted.Reply():
                effect.token(effect.answer)
            case wanted.ReadAndReply():
                effect.token(await with_records(self._log, effect))
            case wanted.ReadPieceAndReply():
                effect.token(await with_piece(self._log, effect))
            case wanted.AppendRecords():
                await self._write_decided(effect)
            case wanted.AppendLeaderChange():
                await self._write_leader_change(effect)
            case wanted.AppendFetched():
                await self._log.write_fetched(effect.answer.records, end_offset=effect.end_offset, now_ms=self._world.clock.now_ms())
                self._sync_soon(effect.end_offset, effect.log_version)
            case wanted.PersistElection():
                if effect.is_binding:
                    await self._log.write_election(effect.election, self._quorum.settings.voters.ids)
            case wanted.TruncateLog():
                self._unsynced = None
                await self._sync(lambda: self._log.truncate_to(effect.end_offset))
            case DeleteLog():
                await self._sync(lambda: self._log.delete_below(effect.offset))
            case wanted.WriteSnapshotPiece():
                await self._log.snapshots.write_piece(effect.position, effect.data)
            case wanted.InstallSnapshot():
                await self._install(effect)
            case wanted.HighWatermark():
                self._high_watermark = effect.offset
                self._apply_soon()
            case wanted.LeadershipEstablished():
                self._established = effect.epoch, effect.offset
                self._apply_soon()
            case wanted.LostLeadership():
                self._lose_leadership()
            case wanted.BecameLeader() | wanted.FollowsLeader():
                self.strangers.on_leader()
                leader_id = effect.leader_id if isinstance(effect, wanted.FollowsLeader) else self._quorum.settings.node_id
                if leader_id != NO_LEADER:
                    self.last_leader_id = leader_id
                    log.info("metadata_leader", epoch=effect.epoch, leader_id=leader_id)
                    self._follower.on_leader()
            case wanted.SecondLeader():
                self.strangers.on_second_leader(effect)
            case wanted.Probe():
                self._others().probe(effect.peer, lambda proof: self._on_proof(effect.peer, proof))
            case wanted.Fatal():
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, effect.reason)
            case _:
                raise AssertionError(f"{type(effect).__name__} is no effect of a quorum")

    # -- others

    def _others(self) -> Voters:
        assert self._voters is not None, "the only voter has no other to ask"
        return self._voters

    def _send(self, effect: wanted.SendRequest) -> None:
        peer, request = effect.peer, effect.request

        def on_answer(answer: Answer | None) -> None:
            if self._is_stopped:
                return
            now_ms = self._now_ms()
            if answer is None:
                self._feed(self._quorum.on_connection_lost(peer, now_ms))
            elif answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._ended(self.strangers.on_foreign(peer, has_leader=self.leader_id != NO_LEADER))
            else:
                self._feed(self._quorum.on_answer(peer, request, answer, now_ms))

        self._others().send(peer, request, on_answer)

    def _on_proof(self, peer: int, proof: bool | None) -> None:
        if proof is None or self._is_stopped:
            return
        now_ms = self._now_ms()
        self._feed(self._quorum.on_peer_alive(peer, now_ms) if proof else self._quorum.on_peer_dead(peer, now_ms))

    # -- writing

    async def _write_decided(self, first: wanted.AppendRecords) -> None:
        """Writes the decision, with the next ones in the queue."""
        await self._applied.seal()
        (level, records), last = first.records, first
        groups = [records]
        while self._queue and isinstance(following := self._queue[0], wanted.AppendRecords) and following.epoch == first.epoch:
            self._queue.popleft()
            groups.append(following.records[1])
            last = following
        await self._log.write_groups(groups, epoch=first.epoch, now_ms=self._world.clock.now_ms(), level=level)
        self._sync_soon(last.end_offset, last.log_version)

    async def _write_leader_change(self, effect: wanted.AppendLeaderChange) -> None:
        await self._log.write_leader_change(effect, self._world.clock.now_ms())
        self._sync_soon(effect.end_offset, effect.log_version)

    def _sync_soon(self, end_offset: int, log_version: int) -> None:
        self._unsynced = end_offset, log_version
        if not self._is_sync_due:
            self._is_sync_due = True
            eager.run(self._sync(), lambda _, error: self._ended(error))

    async def _sync_once(self) -> None:
        self._is_sync_due = False
        while self._unsynced is not None:
            (end_offset, log_version), self._unsynced = self._unsynced, None
            await self._log.sync()
            self._feed(self._quorum.on_flushed(end_offset, log_version, self._now_ms()))

    async def _install(self, effect: wanted.InstallSnapshot) -> None:
        """Starts the images over from the snapshot."""
        self._unsynced = None
        snapshot_id = effect.snapshot_id

        async def install() -> None:
            await self._log.install(snapshot_id.end_offset, snapshot_id.epoch)
            self._applied.start_over(await self._log.newest_image())

        await self._sync(lambda: self._apply(install))

    # -- what is committed

    def _apply_soon(self) -> None:
        if not self._is_apply_due:
            self._is_apply_due = True
            eager.run(self._apply(), lambda _, error: self._ended(error))

    async def _apply_once(self) -> None:
        """Applies what is committed to the image. A leader that has all of it may decide."""
        self._is_apply_due = False
        await self._applied.apply(self._high_watermark)
        if self._established is not None and not self._is_active and self._applied.end_offset >= self._established[1]:
            self._become_active(self._established[0])
        if self._snapshot_due.is_due(self._log.appended_bytes, self._world.clock.now_ms()) and not self._snapshot.is_running:
            eager.run(self._snapshot(), lambda _, error: self._ended(error))

    def _become_active(self, epoch: int) -> None:
        self._is_active = True
        if self._applied.begin_own():
            log.warning("metadata_transaction_aborted", end_offset=self._applied.end_offset)
            self.append([AbortTransactionRecord("a crash left it incomplete")])
        self._follower.on_active(epoch)

    def _lose_leadership(self) -> None:
        """Ends deciding; decisions that are not committed are dropped."""
        self._established = None
        if not self._is_active:
            return
        self._is_active = False
        self._applied.end_own()
        self._follower.on_inactive()

    def _on_committed(self) -> None:
        self._follower.on_committed()

    async def write_snapshot(self) -> None:
        """Writes the committed image as a snapshot, and deletes the log before it."""
        await self._snapshot()

    async def _snapshot_once(self) -> None:
        self._snapshot_due.written(self._log.appended_bytes, self._world.clock.now_ms())
        try:
            written = await self._log.snapshots.write(self.image, self._world.clock.now_ms())
        except OSError as error:
            if error.errno not in PASSING:
                raise
            log.warning("metadata_snapshot_not_written", reason=str(error))  # the log has it all; as much later the next is due
            return
        found = shape_of(await self._log.snapshots.all())
        if written.end_offset < self._quorum.log.start_offset:  # a newer one of the leader's has come meanwhile, installed or about to be
            return
        self._feed((*self._quorum.on_snapshots(found, written.end_offset, self._now_ms()), DeleteLog(written.end_offset)))


async def _nothing() -> None:
    pass
