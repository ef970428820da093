"""What a broker does by the clock: idle connections, flush.ms, retention, idle producers, checkpoints, what was deleted.

A log directory that is no longer there fails within a second or two: no error says so where its open files take what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.log_directories import LogDirectories
from ottla.broker.part import Part
from ottla.broker.replicas.missing_replicas import fail_removed
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.router import Router
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.broker.upkeep.retention import Retention
from ottla.config import BrokerConfig
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.ports import TimerHandle, World

log = get_logger(__name__)

TICK_MS = 1000
CHECKPOINT_MS = 60_000
RETRY_MS = 10_000
CLOCK_STEP_MS = 1000
"""What the wall clock must be set by, between two rounds, to count as set."""


class Housekeeping(Part):
    """One timer, one round a second; a round that takes longer delays the next."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        directories: LogDirectories,
        partitions: PartitionStore,
        router: Router,
        retry_offline: Callable[[], Awaitable[None]],
    ) -> None:
        self._world = world
        self._config = config
        self._directories = directories
        self._partitions = partitions
        self._router = router
        self._retry_offline = retry_offline
        self._retention = Retention(config, partitions)
        self._timer: TimerHandle | None = None
        self._is_running = self._is_working = False
        self._has_ended: asyncio.Event | None = None  # a caller waits for the round to end
        self._last_checkpoint_ms = self._last_expiration_ms = self._last_retry_ms = 0
        self._due_ms = 0
        self._wall_ahead_ms = 0  # of the monotonic clock, at the last round
        self.delay_ms = 0  # how late the last round started: what the loop was busy with

    async def start(self) -> None:
        self._is_running = True
        now_ms = self._world.clock.monotonic_ms()
        self._last_checkpoint_ms = self._last_expiration_ms = self._last_retry_ms = now_ms
        self._wall_ahead_ms = self._world.clock.now_ms() - now_ms
        self._retention.start(now_ms)
        self._schedule()

    async def stop(self) -> None:
        """Stops: no round is on, and none will start."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._is_working:
            self._has_ended = asyncio.Event()
            await self._has_ended.wait()

    def _schedule(self) -> None:
        if self._is_running:
            self._due_ms = self._world.clock.monotonic_ms() + TICK_MS
            self._timer = self._world.timers.call_later_ms(TICK_MS, self._tick)

    def _tick(self) -> None:
        self._is_working = True
        eager.run(self._round(), self._finished)

    def _finished(self, _: None, error: BaseException | None) -> None:
        self._is_working = False
        if self._has_ended is not None:
            self._has_ended.set()
        if error is not None:
            log.error("housekeeping_failed", exc_info=error)
        self._schedule()

    async def _round(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        self.delay_ms = max(0, now_ms - self._due_ms)
        self._close_idle(now_ms)
        for directory in await self._directories.absent():
            self._partitions.fail_directory(directory, "it was removed, or its disk was unmounted")
        wall_ms = self._world.clock.now_ms()
        self._follow_clock(wall_ms - self._world.clock.monotonic_ms())
        slices = Slices(self._world.clock)
        await self._sync_due(wall_ms, slices)
        await self._retention.run(now_ms, wall_ms=wall_ms, slices=slices)
        if now_ms - self._last_expiration_ms >= self._config["producer.id.expiration.check.interval.ms"]:
            self._last_expiration_ms = now_ms
            async for partition in slices.over(self._partitions.all()):
                partition.log.expire_producers(wall_ms)
        if now_ms - self._last_checkpoint_ms >= CHECKPOINT_MS:
            self._last_checkpoint_ms = now_ms
            replicas = slices.over(self._partitions.all())
            await fail_removed(self._world.disk, replicas, self._partitions.replication.damage)
            await self._write_checkpoints()
            for meters in self._router.meters.values():
                meters.timer.begin_period()
        await self._partitions.remove_departed()
        if now_ms - self._last_retry_ms >= RETRY_MS:
            self._last_retry_ms = now_ms
            await self._retry_offline()

    def _follow_clock(self, wall_ahead_ms: int) -> None:
        """Corrects the producers' ages: a wall clock that was set makes none older, nor younger; all would be forgotten at once."""
        set_by_ms, self._wall_ahead_ms = wall_ahead_ms - self._wall_ahead_ms, wall_ahead_ms
        if abs(set_by_ms) >= CLOCK_STEP_MS:
            log.warning("wall_clock_set", by_ms=set_by_ms)
            for partition in self._partitions.all():
                partition.log.producers.clock_was_set(set_by_ms)

    async def _write_checkpoints(self) -> None:
        try:
            await self._partitions.write_checkpoints()
        except StorageError as error:  # the rest of the round may be what makes room for them
            log.error("checkpoints_not_written", reason=error.message)

    def _close_idle(self, now_ms: int) -> None:
        idle_ms = self._config["connections.max.idle.ms"]
        if idle_ms < 0:
            return
        for connection in list(self._router.connections):
            if now_ms - connection.last_used_ms > idle_ms and not connection.has_open_requests:
                connection.transport.close()

    async def _sync_due(self, now_ms: int, slices: Slices) -> None:
        """Syncs closed segments, and logs whose oldest unsynced message is older than flush.ms."""
        async for partition in slices.over(self._partitions.all()):
            opened = partition.log
            waited_ms = now_ms - opened.tail.unsynced_since_ms if opened.tail.unsynced_since_ms >= 0 else -1
            if not opened.is_failed and (opened.durability.has_unsynced_segments or waited_ms >= opened.config.flush_ms):
                try:
                    await partition.sync()
                except StorageError as error:
                    log.error("log_sync_failed", topic=partition.topic, partition=partition.index, error=error.message)
