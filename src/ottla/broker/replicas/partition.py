"""One partition as this broker serves it: the log, the role of this broker's replica (``replica_role.py``), and who waits for it to grow.

A partition that is offline answers KAFKA_STORAGE_ERROR until its directory is back; one that this broker does not lead answers
NOT_LEADER_OR_FOLLOWER. What was staged in one leader epoch is never written in a later one: it is dropped when
the epoch ends, and what was being written at that moment is not acknowledged either. Source: KIP-101, KIP-320.

Consumers read up to the high watermark (``replication/high_watermark.py``). With one replica that is the end of what has been
flushed to the log; with several the leader computes it (``replication/leader.py``), and followers take it from the leader.

Appending has two phases. ``stage`` checks a batch and gives it its offsets; ``flush`` writes all that was staged, in one
vectored write, and only then does the high watermark move. Source: KIP-101, KIP-98.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.replicas.replica_role import ReplicaRole, Role
from ottla.broker.replicas.replication import CommitWaiter, Replication, until_committed
from ottla.broker.replicas.unread import Unread
from ottla.broker.replicas.waiting import AT_ONCE, AppendWaiter, FollowerWaiter
from ottla.broker.tasks.single_flight import SingleFlight
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.loggers import get_logger
from ottla.metadata.image import PartitionImage
from ottla.metrics import TopicMeters
from ottla.replication.high_watermark import HighWatermark
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.tail import Appended
from ottla.types import INTERNAL_TOPICS, NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.replicas.leading import Leading
    from ottla.replication.follower import Followed

log = get_logger(__name__)


class Partition:
    __slots__ = (
        "_flush", "_on_failed", "_replication", "_sync", "changing", "committed", "follower_waiters", "index", "is_internal", "log",
        "meters", "role", "topic", "topic_id", "unread", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        *,
        meters: TopicMeters,
        replication: Replication,
        high_watermark: int = 0,
        on_failed: Callable[[Partition], None] = lambda partition: None,
        on_role: Callable[[Partition], None] = lambda partition: None,
    ) -> None:
        """Makes a replica that leads nothing, and follows no broker, until ``take_role``; ``on_role`` is called when its role changes."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self._replication = replication
        self.committed = HighWatermark(min(high_watermark, log.log_end_offset))  # the machine of the role moves it
        self.follower_waiters: dict[FollowerWaiter, None] = {}  # who waits for the log's end, not for the high watermark
        self.is_internal = topic in INTERNAL_TOPICS
        self.meters = meters  # shared by the partitions of the topic
        self.waiters: dict[AppendWaiter, None] = {}  # a set that keeps its order
        self.unread = Unread()  # with several replicas
        self._flush = SingleFlight(self._flush_once)
        self._sync = SingleFlight(self._sync_once)
        self.role = ReplicaRole(self, replication, self._flush, on_role)
        self._on_failed = on_failed
        log.health.on_failed = self._log_failed
        self.changing = asyncio.Lock()  # held while closed segments are synced, deleted or replaced

    def take_role(self, image: PartitionImage) -> None:
        """Takes the role of leader, of follower, or neither. What waits under an earlier epoch is answered."""
        if image.is_recovering:  # what its leader lacks was perhaps the only batch of a producer
            self.log.producers.may_lack_some = True
        if len(image.replicas) > 1:
            self.log.tail.committed_end = lambda: self.committed.offset
        if self.role.take(image):
            self._wake_all()

    def take_role_again(self) -> None:
        """Takes the newest image's role again, now that this process may lead, or may not."""
        if self.role.take_again():
            self._wake_all()

    @property
    def leader_epoch(self) -> int:
        """As the image has it, whichever broker leads."""
        return self.role.leader_epoch

    @property
    def led_epoch(self) -> int:
        """That epoch while this broker leads the partition; else -1."""
        return self.role.led_epoch

    @property
    def leading(self) -> Leading | None:
        """While this broker leads a partition of several replicas."""
        return self.role.leading

    @property
    def followed(self) -> Followed | None:
        """While another broker leads it."""
        return self.role.followed

    @property
    def high_watermark(self) -> int:
        """Up to here everything is committed, as far as this replica knows."""
        return self.committed.offset

    @property
    def lag(self) -> int | None:
        """How many offsets this follower lacks of what its leader last said was committed; 0 for a leader.

        None where it is not known: the leader has not answered yet, or is not asked, since there is no room for another record. A leader
        says nothing of a log in which nothing happens: a replica in sync lacks nothing then.
        """
        if self.followed is None:
            return 0
        known = self.followed.leader_committed
        if self.log.health.has_no_room or (known < 0 and not self.role.is_in_sync):
            return None
        return max(0, known - self.log.log_end_offset)

    def count_replicated(self, size_bytes: int) -> None:
        """Counts what was fetched from the leader, and is in the log."""
        self.unread.grew(self.log.log_end_offset, size_bytes)
        replication = self._replication
        replication.count_fetched(self.topic, self.index, size_bytes, is_added=self.role.is_adding(replication.node_id))

    def configure(self, config: LogConfig) -> None:
        """Applies the configuration from the next batch on."""
        self.log.configure(config)
        if self.leading is not None:
            self.leading.set_min_isr(config.min_insync_replicas)

    def wait_for_commit(self, end_offset: int, waiter: CommitWaiter, what: Any) -> None:
        """Calls ``waiter.on_commit`` when everything below ``end_offset`` is committed, or never will be here."""
        if self.leading is not None:
            self.leading.wait_for_commit(end_offset, waiter, what)
        else:
            waiter.on_commit(what, None if self.led_epoch >= 0 else self.not_leader())

    def tell_followers(self, size_bytes: int = 0) -> None:
        """Notifies followers of so many bytes more; 0: their next fetch has something to report; ``AT_ONCE``: it is to be sent now."""
        for waiter in list(self.follower_waiters):
            waiter.on_leader_progress(self, size_bytes)

    def follower_committed(self) -> None:
        """Notes that more of this replica's log is committed, by the leader's word: consumers may read it here (KIP-392)."""
        size_bytes = self.unread.take(self.committed.offset)
        if self.waiters:
            self.wake(size_bytes)

    def start_moved(self, size_bytes: int = 0) -> None:
        """Notes that the log starts elsewhere. Consumers learn that with their next fetch; followers as ``tell_followers`` says."""
        self.tell_followers(size_bytes)
        self.wake(0)

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def last_stable_offset(self) -> int:
        """Up to here every transaction has ended, or is deleted; without transactions the high watermark. Never below the log's start."""
        return max(self.log.log_start_offset, self.log.tail.producers.last_stable_offset(self.committed.offset))

    @property
    def is_settled(self) -> bool:
        """Nothing is staged and nothing is being written: what the log shows is all there is."""
        return not (self.log.tail.has_pending or self._flush.is_running)

    def stage(
        self, view: memoryview, *, now_ms: int, is_prepared: bool = False, is_permitted: bool = False, begins_at_zero: bool = False
    ) -> Appended:
        """Stages the batch with its offsets, for the next ``flush`` to write; ``view`` must stay as it is until then.

        NOT_LEADER_OR_FOLLOWER when this broker does not lead the partition.
        """
        epoch = self.role.led_epoch
        if epoch < 0:
            self.check_leads()
        appended = self.log.stage(
            view, leader_epoch=epoch, now_ms=now_ms, is_prepared=is_prepared, is_permitted=is_permitted, begins_at_zero=begins_at_zero
        )
        meters = self.meters
        meters.produce_requests += 1
        meters.bytes_in += len(view)
        meters.messages_in += appended.last_offset - appended.base_offset + 1
        return appended

    def stage_own(self, view: memoryview, *, leader_epoch: int, now_ms: int, transaction_version: int = 0) -> Appended:
        """Stages what the leader of that epoch writes itself, as ``stage``: control batches are allowed, and no rules of the topic hold."""
        if leader_epoch != self.led_epoch:
            self.check_leads()
            raise self.not_leader()
        return self.log.stage(view, leader_epoch=leader_epoch, now_ms=now_ms, from_client=False, transaction_version=transaction_version)

    async def flush(self, drop_count: int | None = None) -> None:
        """Writes all that was staged before the call to the log, and makes it readable. The error of ``unwritten`` when that fails.

        Of what was staged before this turn, ``drop_count`` is that of its log then: it may have been dropped meanwhile.
        """
        log, tail = self.log, self.log.tail
        if drop_count is None:
            drop_count = tail.drop_count
        try:
            if tail.has_pending or self._flush.is_running or log.durability.owes_sync:
                await self._flush()
        except StorageError as error:
            raise self.unwritten(drop_count) if log.health.is_retired else error from None
        if log.health.is_failed or tail.drop_count != drop_count:
            raise self.unwritten(drop_count)

    def unwritten(self, drop_count: int) -> KafkaError:
        """Returns why a batch that was staged under that drop count is not acknowledged.

        NOT_LEADER_OR_FOLLOWER when its leader epoch has ended since, or this broker's replica is gone: it may be in the log, or not.
        StorageError when the disk refused it.
        """
        if self.log.health.is_retired or (not self.log.is_failed and drop_count < self.role.ended_at):
            return self.not_leader()
        return StorageError(f"the log of {self.topic}-{self.index} was not written")

    async def flush_until_committed(self, drop_count: int | None = None) -> None:
        """Flushes, and waits until all that was in the log is committed. KafkaError when it will not be here, or by too few replicas."""
        await self.flush(drop_count)
        if self.leading is not None:
            await until_committed(partial(self.wait_for_commit, self.log.log_end_offset))

    async def stand_still(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does ``work`` while nothing is written to the log, synced, deleted or replaced in it. What is staged waits."""

        async def run() -> None:
            async with self.changing:
                await work()

        await self._flush(run)

    async def settled(self) -> None:
        """Waits until no closed segment is being synced, deleted or replaced."""
        async with self.changing:
            pass

    async def sync(self) -> None:
        """Makes what was in the log before the call durable."""
        await self._sync()

    async def _sync_once(self) -> None:
        async with self.changing:
            await self.log.sync()

    async def close(self, *, is_durable: bool) -> bool:
        """Closes the log (``PartitionLog.close``); False when it has failed instead. It takes nothing more in either case."""
        if self.log.is_failed:
            return False
        try:
            if not self.is_settled or self.log.durability.owes_sync:
                await self._flush()
            async with self.changing:
                await self.log.close(is_durable=is_durable)
        except (OSError, StorageError) as error:
            if isinstance(error, OSError):
                self.log.health.on_disk_error(error)
            self.log.health.fail()  # it is not closed, whatever the reason
            log.error("log_not_closed", topic=self.topic, partition=self.index, reason=str(error))
            return False
        return True

    def retire(self) -> None:
        """Retires the deleted partition. Requests that wait for it are answered now."""
        self.role.go_offline(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic} was deleted"), is_deleted=True)
        self.log.retire()
        self.role.on_change(self)
        self._wake_all()

    def fail(self) -> None:
        """Takes the partition offline. Requests that wait for it are answered now."""
        self.log.health.fail()
        self.role.go_offline(StorageError(f"the log of {self.topic}-{self.index} has failed"))
        self._wake_all()

    def _log_failed(self) -> None:
        if damage := self.log.health.damage:
            log.error("segment_damaged", topic=self.topic, partition=self.index, directory=self.log.directory, reason=damage)
            self._replication.damage.damaged_segments += 1
        self.wake(0)
        self._on_failed(self)

    def wake(self, size_bytes: int) -> None:
        """Lets each waiter learn that so much more can be read; with 0, that the next fetch has something else to report."""
        for waiter in list(self.waiters):
            try:
                waiter.on_append(size_bytes)
            except Exception as error:
                log.error("request_failed", topic=self.topic, partition=self.index, exc_info=error)

    def _wake_all(self) -> None:
        """Lets all that wait look again, at everything."""
        self.tell_followers(AT_ONCE)
        self.wake(AT_ONCE)

    async def _flush_once(self) -> None:
        opened = self.log
        tail = opened.tail
        if opened.health.is_failed:
            return
        before = tail.appended_bytes
        try:
            if tail.has_pending:
                await opened.flush()
            if opened.durability.owes_sync:
                await self._sync()
        finally:
            grown = tail.appended_bytes - before
            if grown:
                if self.leading is not None:
                    self._grew(self.leading, grown)
                else:
                    if self.role.kind is Role.LEADS_ALONE:
                        self.committed.raise_to(tail.end_offset)
                    if self.waiters:
                        self.wake(grown)

    def _grew(self, leading: Leading, size_bytes: int) -> None:
        """Notes that the log has so much more, for followers at once and for consumers once it is committed."""
        leading.grew(size_bytes)
        self.tell_followers(size_bytes)

    def check_leads(self, epoch: int = NO_EPOCH) -> None:
        """Checks that this broker leads the partition, in the epoch that the client knows (NO_EPOCH: it does not say; KIP-320).

        KAFKA_STORAGE_ERROR when the partition is offline; FENCED_LEADER_EPOCH for a client that knows an earlier epoch,
        UNKNOWN_LEADER_EPOCH for a later one; else NOT_LEADER_OR_FOLLOWER.
        """
        led = self.role.led_epoch
        if led < 0 or (epoch != led and epoch >= 0) or self.log.health.is_failed:
            self.check_epoch(epoch)
            raise self.not_leader()

    def check_epoch(self, epoch: int) -> None:
        """Checks as ``check_leads`` does, of a replica that need not be the leader's."""
        if self.log.is_failed:
            raise StorageError(f"{self.topic}-{self.index} is offline: its log has failed")
        check_known_epoch(self.key, self.leader_epoch, epoch)

    def not_leader(self) -> KafkaError:
        """Returns NOT_LEADER_OR_FOLLOWER, with the reason."""
        text = f"this broker does not lead {self.topic}-{self.index} in leader epoch {self.leader_epoch}"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)


def check_known_epoch(partition: TopicPartition, own: int, known: int) -> None:
    """Raises FENCED_LEADER_EPOCH for an earlier epoch of a client, UNKNOWN_LEADER_EPOCH for a later one, and nothing below 0."""
    if known < 0 or known == own:
        return
    if known < own:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{partition} is at leader epoch {own}, not {known}")
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{partition} is at leader epoch {own}, not yet {known}")
