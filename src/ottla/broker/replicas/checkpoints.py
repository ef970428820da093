"""What the checkpoint files of all log directories say about each partition: read at the start, used to open its log, written again.

An open log knows its offsets itself. For a partition that could not be opened, the offsets that were read are kept and written back
with the others: without its start offset, deleted records would come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.broker.tasks.slices import sliced
from ottla.loggers import get_logger
from ottla.metrics import DamageMeters
from ottla.ports import World
from ottla.storage.config import LogConfig
from ottla.storage.directory.checkpoint import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    read_checkpoint,
    write_checkpoint,
)
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.recovery.damage import check_damage
from ottla.types import TopicPartition

log = get_logger(__name__)

FILES: Final = (RECOVERY_POINT, LOG_START_OFFSET, CLEANER_OFFSET, HIGH_WATERMARK)
"""In the order of the fields of ``LogOffsets``."""

SLICE_LOGS: Final = 1000


class LogOffsets(NamedTuple):
    """The offsets where recovery starts, where the log starts, and up to which it is compacted and committed."""

    recovery_point: int = 0
    log_start_offset: int = 0
    first_dirty_offset: int = 0
    high_watermark: int = 0

    def for_log(self) -> dict[str, int]:
        """Returns the arguments of ``PartitionLog.open``."""
        return {key: value for key, value in self._asdict().items() if key != "high_watermark"}


class Checkpoints:
    """The offsets of the partitions that are not open, as the files or their closed logs have them; open logs have their own."""

    def __init__(self, world: World, damage: DamageMeters) -> None:
        self.damage = damage
        self._world = world
        self._disk = world.disk
        self._read: dict[TopicPartition, dict[str, LogOffsets]] = {}  # of partitions that are not open, by the path of the directory

    async def read(self, directory: LogDirectory) -> None:
        """Reads what the directory's files say."""
        files = [await read_checkpoint(self._disk, f"{directory.path}/{name}") for name in FILES]
        for key in {key for found in files for key in found}:
            self._read.setdefault(key, {})[directory.path] = LogOffsets(*(found.get(key, 0) for found in files))

    def of(self, key: TopicPartition, directory: LogDirectory, *, was_moved: bool) -> LogOffsets:
        """Returns what the files say of the replica in that directory; zeros where nothing does, or where it is forgotten.

        A crash soon after a move leaves some of it, or all, in the files of the directory that the replica came from. These offsets only
        rise, so that of a replica that ``was_moved`` the largest ones count.
        """
        found = self._read.get(key, {})
        return _largest(found) if was_moved else found.get(directory.path, LogOffsets())

    async def open_log(
        self, key: TopicPartition, directory: LogDirectory, config: LogConfig, *, is_clean: bool, is_durable: bool
    ) -> tuple[PartitionLog, int]:
        """Opens the log of a replica, and returns it with the offset below which it is known to be committed. The log has its offsets then.

        ``is_clean``: it was closed in order. What recovery has cut from its files is in the broker's log. StorageError for a log that is
        known to be damaged.
        """
        path = directory.partition_path(key)
        await check_damage(self._disk, path)
        known, now_ms = self.of(key, directory, was_moved=await directory.generation(key) > 0), self._world.clock.now_ms()
        opened = await PartitionLog.open(
            self._disk, path, config=config, now_ms=now_ms, clean=is_clean, is_durable=is_durable, **known.for_log()
        )
        for cut in opened.cuts:
            self.damage.cut(cut.lost_bytes)
            log.warning(
                "log_cut", partition=str(key), file=cut.path, kept_bytes=cut.size, lost_bytes=cut.lost_bytes, end_offset=cut.end_offset
            )
        self.forget(key)
        return opened, known.high_watermark

    def keep(self, key: TopicPartition, directory: LogDirectory, closed: PartitionLog) -> None:
        """Keeps what is known of the log, in that directory, which is open no longer."""
        self._read[key] = {directory.path: _offsets_of(closed)}

    def __contains__(self, key: TopicPartition) -> bool:
        """True when something is known of it."""
        return key in self._read

    def forget(self, key: TopicPartition) -> None:
        """Forgets the partition, which is open, or whose name another one has."""
        self._read.pop(key, None)

    async def write(self, directory: LogDirectory, logs: Mapping[TopicPartition, PartitionLog], closed: Iterable[TopicPartition]) -> None:
        """Writes the directory's files: its open logs, and of those that are ``closed`` what was read of them.

        What is written of a log was true of it at one moment since the call; the moments of many logs differ.
        """
        offsets = {key: _largest(self._read[key]) for key in closed if key in self._read}
        async for key, found in sliced(logs.items(), SLICE_LOGS):
            offsets[key] = _offsets_of(found)
        for column, name in enumerate(FILES):
            listed = {key: known[column] for key, known in offsets.items() if known[column] or name == RECOVERY_POINT}
            path = f"{directory.path}/{name}"
            if listed or name != HIGH_WATERMARK or await self._disk.exists(path):
                await write_checkpoint(self._disk, path, listed)
            if name == LOG_START_OFFSET:
                async for key, found in sliced(logs.items(), SLICE_LOGS):
                    found.durability.start_is_kept(min(offsets[key].log_start_offset, found.log_start_offset))


def _offsets_of(known: PartitionLog) -> LogOffsets:
    start_offset, dirty_offset, committed = known.log_start_offset, known.compaction.first_dirty_offset, known.log_end_offset
    if known.tail.committed_end is not None:  # there are other replicas
        committed = known.tail.committed_end()
        known.tail.remember_producers()  # what is cut is after what is committed
    return LogOffsets(known.recovery_point, start_offset, dirty_offset if dirty_offset > start_offset else 0, committed)


def _largest(found: Mapping[str, LogOffsets]) -> LogOffsets:
    return LogOffsets(*map(max, zip(*found.values()))) if found else LogOffsets()
