"""The scrubber: reads every closed segment once in a while, slowly, and takes a partition offline whose files are damaged."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import structlog

from ottla.errors import WorkerDied
from ottla.storage.scrubbing import SCRUB_JOB, ScrubRequest

if TYPE_CHECKING:
    from ottla.broker.node import Broker
    from ottla.broker.partition import Partition
    from ottla.ports import TimerHandle
    from ottla.storage.segment import Segment

log = structlog.get_logger()

START_MS: Final = 60_000


class Scrubber:
    """A first round soon after the start, then one every ``ottla.log.scrub.interval.ms``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._schedule(START_MS)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    def _schedule(self, delay_ms: int) -> None:
        self._timer = self._broker.world.timers.call_later_ms(delay_ms, self._begin)

    def _begin(self) -> None:
        if self._broker.config["ottla.log.scrub.interval.ms"] < 0:
            self._schedule(START_MS)  # it may be switched on while the broker runs
            return
        self._round = asyncio.get_running_loop().create_task(self._scrub_all())
        self._round.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._round = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("scrub_failed", exc_info=task.exception())
        self._schedule(max(START_MS, self._broker.config["ottla.log.scrub.interval.ms"]))

    async def _scrub_all(self) -> None:
        """One round over what there is now."""
        count = 0
        for partition in self._broker.partitions.all():
            for segment, following in pairwise(list(partition.log.segments)):
                if not partition.log.is_failed and not segment.is_retired:
                    await self._scrub(partition, segment, following.base_offset)
                    count += 1
        log.info("scrub_done", segments=count)

    async def _scrub(self, partition: Partition, segment: Segment, end_offset: int) -> None:
        request = ScrubRequest(segment.file.path, segment.base_offset, end_offset, segment.size)
        rate = self._broker.config["ottla.log.scrub.bytes.per.second"]
        try:
            found = await self._broker.world.disk.work(SCRUB_JOB, request, bytes_per_second=rate)
        except WorkerDied as error:
            log.warning("segment_not_scrubbed", file=request.path, reason=str(error))
            return
        except OSError as error:
            if not segment.is_retired:  # deleted, or replaced by what compaction left of it
                log.error("segment_unreadable", file=request.path, reason=str(error))
                partition.log.fail_unless_full(error)
            return
        if found.damage is not None and not segment.is_retired:
            log.error(
                "segment_damaged", topic=partition.topic, partition=partition.index, file=request.path, whole_bytes=found.whole_bytes,
                reason=found.damage,
            )  # fmt: skip
            partition.fail()
