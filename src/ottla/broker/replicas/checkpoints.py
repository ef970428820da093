"""What the checkpoint files of all log directories say about each partition, while it is not open and after.

An open log knows its offsets itself. For a partition that could not be opened, the offsets that were read are kept and written back
with the others: without its start offset, deleted records would come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.broker.tasks.slices import sliced
from ottla.ports import Disk
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
from ottla.types import TopicPartition

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
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
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

    def keep(self, key: TopicPartition, directory: LogDirectory, log: PartitionLog) -> None:
        """Keeps what is known of the log, in that directory, which is open no longer."""
        self._read[key] = {directory.path: _offsets_of(log)}

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
        async for key, log in sliced(logs.items(), SLICE_LOGS):
            offsets[key] = _offsets_of(log)
        for column, name in enumerate(FILES):
            listed = {key: found[column] for key, found in offsets.items() if found[column] or name == RECOVERY_POINT}
            path = f"{directory.path}/{name}"
            if listed or name != HIGH_WATERMARK or await self._disk.exists(path):
                await write_checkpoint(self._disk, path, listed)
            if name == LOG_START_OFFSET:
                async for key, log in sliced(logs.items(), SLICE_LOGS):
                    log.durability.start_is_kept(min(offsets[key].log_start_offset, log.log_start_offset))


def _offsets_of(log: PartitionLog) -> LogOffsets:
    dirty = log.compaction.first_dirty_offset if log.compaction.first_dirty_offset > log.log_start_offset else 0
    committed = 0
    if log.tail.committed_end is not None:
        committed = log.tail.committed_end()
        log.tail.remember_producers()  # what is cut is after what is committed
    return LogOffsets(log.recovery_point, log.log_start_offset, dirty, committed)


def _largest(found: Mapping[str, LogOffsets]) -> LogOffsets:
    return LogOffsets(*map(max, zip(*found.values()))) if found else LogOffsets()
