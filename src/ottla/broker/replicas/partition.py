"""One partition as this broker serves it: the log, whether this broker leads it, and who waits for it to grow.

A partition whose log has failed is offline: it answers KAFKA_STORAGE_ERROR until the broker is restarted. One that another broker
leads, or none, answers NOT_LEADER_OR_FOLLOWER. What was staged in one leader epoch is never written in a later one: it is dropped when
the epoch ends, and what was being written at that moment is not acknowledged either. Source: KIP-101, KIP-320.

With one replica the high watermark is the end of what has been flushed to the log: ``0 <= log_start_offset <=
high_watermark == log_end_offset``, and what is acknowledged is what readers see.

Appending has two phases. ``stage`` checks a batch and gives it its offsets; ``flush`` writes all that was staged, in one
vectored write, and only then does the high watermark move. Source: KIP-101, KIP-98.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.broker.tasks import eager
from ottla.broker.tasks.single_flight import Turns
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.loggers import get_logger
from ottla.metrics import TopicMeters
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.tail import Appended
from ottla.types import NO_EPOCH, TopicPartition

log = get_logger(__name__)


class AppendWaiter(Protocol):
    def on_append(self, size_bytes: int) -> None:
        """The partition's readable part has grown."""
        ...


class Partition:
    __slots__ = (
        "_ended_at", "_flush", "_is_leader", "_sync", "changing", "index", "is_internal", "leader_epoch", "led_epoch", "log", "meters",
        "on_role", "topic", "topic_id", "waiters",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: bytes, index: int, log: PartitionLog, *, is_internal: bool, meters: TopicMeters) -> None:
        """A replica that leads nothing until ``take_role``."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = NO_EPOCH  # as the image has it, whoever leads
        self.led_epoch = NO_EPOCH  # that epoch while this broker leads the partition in it
        self._is_leader = False  # as the image has it; ``led_epoch`` follows when nothing of an earlier epoch is being written
        self._ended_at = 0  # the log's drop count when the last epoch ended
        self.on_role: Callable[[Partition], None] = lambda partition: None  # ``led_epoch`` has changed
        self.is_internal = is_internal
        self.meters = meters  # shared by the partitions of the topic
        self.waiters: dict[AppendWaiter, None] = {}  # a set that keeps its order
        self._flush = Turns(self._flush_once)
        self._sync = Turns(self._sync_once)
        self.changing = asyncio.Lock()  # held while closed segments are synced, deleted or replaced

    def take_role(self, leader_epoch: int, *, is_leader: bool) -> None:
        """This broker leads the partition from now on, in that epoch, or does not. What waits under an earlier epoch is answered.

        While a write of the earlier epoch is under way it leads in neither: the log's end, where its epoch begins, is not known yet.
        """
        if leader_epoch == self.leader_epoch and is_leader == self._is_leader:
            return
        self.leader_epoch, self._is_leader = leader_epoch, is_leader
        self.led_epoch = NO_EPOCH
        tail = self.log.tail
        tail.drop_unwritten()
        self._ended_at = tail.drop_count
        if not tail.is_flushing:
            self._lead()
        elif is_leader:
            eager.run(self._flush(self._lead_now), _note_end)
        self.on_role(self)
        self.wake(2**62)

    def _lead(self) -> None:
        if self._is_leader and self.led_epoch < 0:
            self.log.enter_epoch(self.leader_epoch)
            self.led_epoch = self.leader_epoch

    async def _lead_now(self) -> None:
        self._lead()
        self.on_role(self)

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def high_watermark(self) -> int:
        return self.log.tail.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to here every transaction has ended; without transactions the high watermark."""
        return self.log.tail.end_offset

    @property
    def is_settled(self) -> bool:
        """Nothing is staged and nothing is being written: what the log shows is all there is."""
        return not (self.log.tail.has_pending or self._flush.is_running)

    def stage(self, view: memoryview, *, now_ms: int, is_prepared: bool = False) -> Appended:
        """The batch has its offsets and will be written by the next ``flush``; ``view`` must stay as it is until then.

        NOT_LEADER_OR_FOLLOWER when this broker does not lead the partition.
        """
        epoch = self.led_epoch
        if epoch < 0:
            self.check_leads()
        appended = self.log.stage(view, leader_epoch=epoch, now_ms=now_ms, is_prepared=is_prepared)
        meters = self.meters
        meters.produce_requests += 1
        meters.bytes_in += len(view)
        meters.messages_in += appended.last_offset - appended.base_offset + 1
        return appended

    def stage_own(self, view: memoryview, *, leader_epoch: int, now_ms: int) -> None:
        """As ``stage``, for what the leader of that epoch writes itself: control batches are allowed, and no rules of the topic hold."""
        if leader_epoch != self.led_epoch:
            self.check_leads()
            raise self._not_leader()
        self.log.stage(view, leader_epoch=leader_epoch, now_ms=now_ms, from_client=False)

    async def flush(self) -> None:
        """All that was staged before the call is in the log and readable. The error of ``unwritten`` when it is not."""
        log = self.log
        drop_count = log.tail.drop_count
        if not self.is_settled or log.durability.owes_sync:
            await self._flush()
        if log.health.is_failed or log.tail.drop_count != drop_count:
            raise self.unwritten(drop_count)

    def unwritten(self, drop_count: int) -> KafkaError:
        """Why a batch that was staged under that drop count is not acknowledged.

        NOT_LEADER_OR_FOLLOWER when its leader epoch has ended since: it may be in the log, or not. StorageError when the disk refused it.
        """
        if not self.log.is_failed and drop_count < self._ended_at:
            return self._not_leader()
        return StorageError(f"the log of {self.topic}-{self.index} was not written")

    async def stand_still(self, work: Callable[[], Awaitable[None]]) -> None:
        """``work`` is done while nothing is written to the log, synced, deleted or replaced in it. What is staged waits."""

        async def run() -> None:
            async with self.changing:
                await work()

        await self._flush(run)

    async def settled(self) -> None:
        """No closed segment is being synced, deleted or replaced at this moment."""
        async with self.changing:
            return

    async def sync(self) -> None:
        """What was in the log before the call survives a power cut."""
        await self._sync()

    async def _sync_once(self) -> None:
        async with self.changing:
            await self.log.sync()

    async def close(self, *, is_durable: bool) -> bool:
        """Whether the log is closed (``PartitionLog.close``); it has failed otherwise. It takes nothing more in either case."""
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
        """The partition was deleted. Requests that wait for it are answered now."""
        self._is_leader, self.led_epoch = False, NO_EPOCH
        self.log.retire()
        self.on_role(self)
        self.wake(2**62)

    def fail(self) -> None:
        """The partition is offline. Requests that wait for it are answered now."""
        self.log.health.fail()
        self.wake(2**62)

    def wake(self, size_bytes: int) -> None:
        """Each waiter learns that so much more can be read."""
        for waiter in list(self.waiters):
            try:
                waiter.on_append(size_bytes)
            except Exception as error:
                log.error("request_failed", topic=self.topic, partition=self.index, exc_info=error)

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
            if grown and self.waiters:
                self.wake(grown)

    def check_leads(self, epoch: int = NO_EPOCH) -> None:
        """This broker leads the partition, in the epoch that the client knows (NO_EPOCH: it does not say; KIP-320).

        KAFKA_STORAGE_ERROR when the partition is offline; FENCED_LEADER_EPOCH for a client that knows an earlier epoch,
        UNKNOWN_LEADER_EPOCH for a later one; else NOT_LEADER_OR_FOLLOWER.
        """
        led = self.led_epoch
        if led < 0 or (epoch != led and epoch >= 0) or self.log.health.is_failed:
            self.check_epoch(epoch)
            raise self._not_leader()

    def check_epoch(self, epoch: int) -> None:
        """As ``check_leads``, of a replica that need not be the leader's."""
        if self.log.is_failed:
            raise StorageError(f"{self.topic}-{self.index} is offline: its log has failed")
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.topic}-{self.index} is at leader epoch {self.leader_epoch}, not {epoch}"
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.topic}-{self.index} is at leader epoch {self.leader_epoch}, not yet {epoch}"
        )

    def _not_leader(self) -> KafkaError:
        text = f"this broker does not lead {self.topic}-{self.index} in leader epoch {self.leader_epoch}"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)


def _note_end(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("leadership_not_taken_up", exc_info=error)
