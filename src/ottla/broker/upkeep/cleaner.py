"""The log cleaner: compacts one log after the other, the dirtiest first, while there is any to compact.

The work is a background job (class c, ``storage/compaction/job.py``); here it is chosen, and its result installed. A log that cannot
be cleaned rests for a while, and its partition keeps serving: whether its files are damaged is for the scrubber to say.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.part import Part
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks.slices import Slices
from ottla.broker.upkeep.rounds import Rounds
from ottla.config import BrokerConfig
from ottla.errors import KafkaError, WorkerDied
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.storage.compaction.dirtiness import dirtiest
from ottla.storage.compaction.job import CLEAN_JOB, CleanRequest, CleanResult
from ottla.storage.disk_errors import is_disk_at_fault

log = get_logger(__name__)

REST_MS: Final = 10 * 60_000


class LogCleaner(Part):
    """One round at a time, ``log.cleaner.backoff.ms`` after the one before."""

    def __init__(self, world: World, config: BrokerConfig, partitions: PartitionStore) -> None:
        self._world = world
        self._config = config
        self._partitions = partitions
        self._rests_until: dict[Partition, int] = {}
        self._rounds = Rounds(world, "log_cleaner", self._clean_all, self._backoff_ms)

    async def start(self) -> None:
        if self._config["log.cleaner.enable"]:
            self._rounds.start(self._backoff_ms())

    async def stop(self) -> None:
        """Stops the cleaning; the next start drops what a worker had started."""
        await self._rounds.stop()

    def _backoff_ms(self) -> int:
        backoff_ms: int = self._config["log.cleaner.backoff.ms"]
        return backoff_ms

    async def _clean_all(self) -> None:
        while (partition := await self._dirtiest()) is not None:
            try:
                await self._clean(partition)
            except OSError as error:
                if is_disk_at_fault(error):
                    partition.log.health.fail_with_disk(error)
                self._let_rest(partition, str(error))
            except WorkerDied as error:
                self._let_rest(partition, str(error))
            except KafkaError as error:
                self._let_rest(partition, error.message)

    async def _dirtiest(self) -> Partition | None:
        now_ms = self._world.clock.now_ms()
        self._rests_until = {partition: until_ms for partition, until_ms in self._rests_until.items() if until_ms > now_ms}
        logs = []
        async for partition in Slices(self._world.clock).over(self._partitions.all()):
            opened = partition.log
            if not opened.config.is_compacted or opened.is_failed or len(opened.segments) == 1 or partition in self._rests_until:
                continue
            try:
                logs.append(await opened.compaction.dirtiness(partition, now_ms))
            except OSError as error:
                opened.health.on_disk_error(error)
            except KafkaError as error:
                self._let_rest(partition, error.message)
        return dirtiest(logs)

    async def _clean(self, partition: Partition) -> None:
        config, opened = self._config, partition.log
        request = await opened.compaction.clean_request(
            self._world.clock.now_ms(),
            map_bytes=config["log.cleaner.dedupe.buffer.size"],
            map_load_factor=config["log.cleaner.io.buffer.load.factor"],
        )
        if request is None:  # what there was went with a deletion
            self._let_rest(partition, "nothing to clean")
            return
        is_over = False
        try:
            await self._clean_so(partition, request)
            is_over = True
        finally:
            if not is_over and not opened.is_failed:  # on a full disk it would keep the room until the next start
                await opened.compaction.drop_unfinished(request)

    async def _clean_so(self, partition: Partition, request: CleanRequest) -> None:
        config, opened = self._config, partition.log
        rate = config["log.cleaner.io.max.bytes.per.second"]
        sources = opened.segments[: len(request.sources)]
        cuts = [segment.cut_count for segment in sources]
        try:
            result = await self._world.disk.work(CLEAN_JOB, request, bytes_per_second=rate)
        except FileNotFoundError as error:
            if any(segment.is_retired for segment in sources):  # by retention, a deletion or a move: the next round sees what is left
                log.info("log_cleaning_aborted", topic=partition.topic, partition=partition.index, reason=str(error))
                await opened.compaction.drop_unfinished(request)
                return
            raise
        await self._partitions.write_checkpoints()
        async with partition.changing:
            if opened.is_failed or [segment.cut_count for segment in sources] != cuts:
                await opened.compaction.drop_all_cleaned(result.cleaned)
                return
            await self._install(partition, result)
        await self._partitions.write_checkpoints()

    async def _install(self, partition: Partition, result: CleanResult) -> None:
        opened, before = partition.log, partition.log.size_bytes
        now_ms = self._world.clock.now_ms()
        if await opened.compaction.install_all(result.cleaned, now_ms=now_ms):  # else segments were deleted meanwhile: it is cleaned again
            opened.compaction.first_dirty_offset = max(opened.compaction.first_dirty_offset, result.end_offset)
        log.info(
            "log_cleaned", topic=partition.topic, partition=partition.index, first_dirty_offset=opened.compaction.first_dirty_offset,
            keys=result.key_count, removed_records=result.removed_records, bytes_before=before, bytes_after=opened.size_bytes,
        )  # fmt: skip

    def _let_rest(self, partition: Partition, reason: str) -> None:
        self._rests_until[partition] = self._world.clock.now_ms() + REST_MS
        log.warning("log_not_cleaned", topic=partition.topic, partition=partition.index, reason=reason)
