"""One partition as this broker serves it: the log, and who waits for it to grow.

A partition whose log has failed is offline: it answers KAFKA_STORAGE_ERROR until the broker is restarted.

With one replica the high watermark is the end of what has been flushed to the log: ``0 <= log_start_offset <=
high_watermark == log_end_offset``, and what is acknowledged is what readers see.

Appending has two phases. ``stage`` checks a batch and gives it its offsets; ``flush`` writes all that was staged, in one
vectored write, and only then does the high watermark move. Source: KIP-101, KIP-98.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.broker.tasks.single_flight import Turns
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.loggers import get_logger
from ottla.metrics import TopicMeters
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.tail import Appended
from ottla.types import TopicPartition

log = get_logger(__name__)


class AppendWaiter(Protocol):
    def on_append(self, size_bytes: int) -> None:
        """The partition's readable part has grown."""
        ...


class Partition:
    __slots__ = ("_flush", "_sync", "changing", "index", "is_internal", "leader_epoch", "log", "meters", "topic", "topic_id", "waiters")

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: PartitionLog, *, leader_epoch: int, is_internal: bool, meters: TopicMeters
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = -1
        self.is_internal = is_internal
        self.meters = meters  # shared by the partitions of the topic
        self.waiters: dict[AppendWaiter, None] = {}  # a set that keeps its order
        self._flush = Turns(self._flush_once)
        self._sync = Turns(self._sync_once)
        self.changing = asyncio.Lock()  # held while closed segments are synced, deleted or replaced

        self.lead(leader_epoch)

    def lead(self, epoch: int) -> None:
        """This broker leads the partition in that epoch."""
        if epoch != self.leader_epoch:
            self.leader_epoch = epoch
            self.log.enter_epoch(epoch)

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to here every transaction has ended; without transactions the high watermark."""
        return self.log.log_end_offset

    @property
    def is_settled(self) -> bool:
        """Nothing is staged and nothing is being written: what the log shows is all there is."""
        return not self.log.has_pending and not self._flush.is_running

    def stage(self, view: memoryview, *, now_ms: int, is_prepared: bool = False) -> Appended:
        """The batch has its offsets and will be written by the next ``flush``; ``view`` must stay as it is until then."""
        appended = self.log.stage(view, leader_epoch=self.leader_epoch, now_ms=now_ms, is_prepared=is_prepared)
        meters = self.meters
        meters.produce_requests += 1
        meters.bytes_in += len(view)
        meters.messages_in += appended.last_offset - appended.base_offset + 1
        return appended

    async def flush(self) -> None:
        """All that was staged before the call is in the log and readable. StorageError when the disk refused it."""
        drop_count = self.log.tail.drop_count
        if not self.is_settled or self.log.durability.owes_sync:
            await self._flush()
        if self.log.is_failed or self.log.tail.drop_count != drop_count:
            raise StorageError(f"the log of {self.topic}-{self.index} was not written")

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
            await self.flush()
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
        self.log.retire()
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
        if opened.is_failed:
            return
        before = opened.tail.appended_bytes
        try:
            if opened.has_pending:
                await opened.flush()
            if self.log.durability.owes_sync:
                await self._sync()
        finally:
            grown = opened.tail.appended_bytes - before
            if grown and self.waiters:
                self.wake(grown)

    def check_leader_epoch(self, epoch: int) -> None:
        """Fences a client that knows an older or a newer leader; -1 means that it does not say (KIP-320).

        KAFKA_STORAGE_ERROR when the partition is offline.
        """
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
