"""The scrubber: reads every closed segment once in a while, slowly, and takes a partition offline whose files are damaged.

It stays offline, over restarts too, until the segment is intact again (``storage.recovery.damage``), or another broker leads
and it is fetched again (``replicas.damaged_replicas``).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from ottla.broker.part import Part
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.upkeep.rounds import Rounds
from ottla.config import BrokerConfig
from ottla.errors import WorkerDied
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.storage.recovery.damage import remember_damage
from ottla.storage.recovery.scrubbing import SCRUB_JOB, Scrubbed, ScrubRequest
from ottla.storage.segment.segment import Segment

log = get_logger(__name__)

START_MS: Final = 60_000


class Scrubber(Part):
    """A first round soon after the start, then one every ``ottla.log.scrub.interval.ms``."""

    def __init__(self, world: World, config: BrokerConfig, partitions: PartitionStore) -> None:
        self._world = world
        self._config = config
        self._partitions = partitions
        self._rounds = Rounds(world, "scrub", self._scrub_all, lambda: max(START_MS, self._interval_ms))

    async def start(self) -> None:
        self._rounds.start(START_MS)

    async def stop(self) -> None:
        await self._rounds.stop()

    @property
    def _interval_ms(self) -> int:
        interval_ms: int = self._config["ottla.log.scrub.interval.ms"]
        return interval_ms

    async def _scrub_all(self) -> None:
        """Scrubs once over what there is now; not while it is switched off, which may change while the broker runs."""
        if self._interval_ms < 0:
            return
        count = 0
        for partition in self._partitions.all():
            for segment, following in pairwise(list(partition.log.segments)):
                await partition.settled()
                if not partition.log.is_failed and not segment.is_retired and not following.is_retired:
                    await self._scrub(partition, segment, -1 if partition.log.lacks_offsets else following.base_offset)
                    count += 1
        log.info("scrub_done", segments=count)

    async def _scrub(self, partition: Partition, segment: Segment, end_offset: int) -> None:
        request, cuts = ScrubRequest(segment.path, segment.base_offset, end_offset, segment.size), segment.cut_count
        rate = self._config["ottla.log.scrub.bytes.per.second"]
        try:
            found = await self._world.disk.work(SCRUB_JOB, request, bytes_per_second=rate)
        except WorkerDied as error:
            log.warning("segment_not_scrubbed", file=request.path, reason=str(error))
            return
        except OSError as error:
            if not segment.has_changed_since(cuts):
                log.error("segment_unreadable", file=request.path, reason=str(error))
                partition.log.health.on_disk_error(error)
            return
        if found.damage is not None:
            async with partition.changing:
                if not segment.has_changed_since(cuts):
                    await self._note_damage(partition, request, found)

    async def _note_damage(self, partition: Partition, request: ScrubRequest, found: Scrubbed) -> None:
        log.error(
            "segment_damaged", topic=partition.topic, partition=partition.index, file=request.path, whole_bytes=found.whole_bytes,
            reason=found.damage,
        )  # fmt: skip
        partition.fail()
        try:
            await remember_damage(self._world.disk, request, found.damage or "")
        except OSError as error:
            log.error("damage_not_remembered", file=request.path, reason=str(error))
