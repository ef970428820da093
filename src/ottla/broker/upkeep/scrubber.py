"""The scrubber: reads every segment once in a while, slowly, and takes a partition offline whose files are damaged.

It reads a segment at once when a follower asks again and again for what it was sent from there.

It stays offline, over restarts too, until the segment is intact again (``storage.recovery.damage``), or another broker leads
and it is fetched again (``replicas.damaged_replicas``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Final

from ottla.broker.part import Part
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replication import Replication
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

    def __init__(self, world: World, config: BrokerConfig, partitions: PartitionStore, replication: Replication) -> None:
        self._world = world
        self._config = config
        self._partitions = partitions
        self._rounds = Rounds(world, "scrub", self._scrub_all, lambda: max(START_MS, self._interval_ms))
        self._looks: set[asyncio.Task[None]] = set()  # at what a reader repeats
        self._damage = replication.damage
        replication.on_suspect = self._on_suspect

    async def start(self) -> None:
        self._rounds.start(START_MS)

    async def stop(self) -> None:
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)
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
            for segment, following in _with_following(partition.log.segments):
                count += await self._scrub(partition, segment, following, self._config["ottla.log.scrub.bytes.per.second"])
        log.info("scrub_done", segments=count)

    def _on_suspect(self, partition: Partition, offset: int, reader: str) -> None:
        log.warning(
            "replica_suspected", topic=partition.topic, partition=partition.index, offset=offset,
            reason=f"{reader} asks again and again for what it was sent: the segment is verified",
        )  # fmt: skip
        look = asyncio.get_running_loop().create_task(self._look_at(partition, offset))
        self._looks.add(look)
        look.add_done_callback(self._looked)

    def _looked(self, look: asyncio.Task[None]) -> None:
        self._looks.discard(look)
        if not look.cancelled() and look.exception() is not None:
            log.error("scrub_failed", exc_info=look.exception())

    async def _look_at(self, partition: Partition, offset: int) -> None:
        """Scrubs the segment that has the offset."""
        for segment, following in _with_following(partition.log.segments):
            if following is None or offset < following.base_offset:
                await self._scrub(partition, segment, following, math.inf)
                return

    async def _scrub(self, partition: Partition, segment: Segment, following: Segment | None, rate: float) -> bool:
        """Reads the segment, of which the log goes on in the ``following`` one; returns whether there was one to read."""
        await partition.settled()
        if partition.log.is_failed or segment.is_retired or not segment.size or (following is not None and following.is_retired):
            return False
        end_offset = -1 if following is None or partition.log.lacks_offsets else following.base_offset
        await self._read(partition, segment, ScrubRequest(segment.path, segment.base_offset, end_offset, segment.size), rate)
        return True

    async def _read(self, partition: Partition, segment: Segment, request: ScrubRequest, rate: float) -> None:
        cuts = segment.cut_count
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
        self._damage.damaged_segments += 1
        partition.log.health.reason = f"damaged: {request.path}"
        partition.fail()
        try:
            await remember_damage(self._world.disk, request, found.damage or "")
        except OSError as error:
            log.error("damage_not_remembered", file=request.path, reason=str(error))


def _with_following(segments: Iterable[Segment]) -> Iterator[tuple[Segment, Segment | None]]:
    """Yields each segment that there is now, with the next one; the last one grows."""
    every = list(segments)
    yield from zip_longest(every, every[1:])
