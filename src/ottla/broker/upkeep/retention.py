"""Deleting what is too old, in all logs: decided, made durable, done.

The new start of each log is checkpointed before a file is deleted, so that no power cut restores half of it. Where
the disk has no room for the checkpoint, segments are removed at once and durably one after the other instead.
"""

from __future__ import annotations

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks.slices import Slices
from ottla.config import BrokerConfig
from ottla.errors import KafkaError, StorageError
from ottla.loggers import get_logger

log = get_logger(__name__)


class Retention:
    """Its rounds, ``log.retention.check.interval.ms`` apart, and the removal of deleted files, which keeps to no interval."""

    def __init__(self, config: BrokerConfig, partitions: PartitionStore) -> None:
        self._config = config
        self._partitions = partitions
        self._last_ms = 0

    def start(self, now_ms: int) -> None:
        """Starts: the first round is one interval away."""
        self._last_ms = now_ms

    async def run(self, now_ms: int, *, wall_ms: int, slices: Slices) -> None:
        """Runs a round, if one is due by the monotonic clock; then removes files whose ``file.delete.delay.ms`` has passed."""
        if now_ms - self._last_ms >= self._config["log.retention.check.interval.ms"]:
            self._last_ms = now_ms
            await _apply(self._partitions, wall_ms, slices)
        await _remove_deleted_files(self._partitions, wall_ms, slices)


async def _apply(partitions: PartitionStore, now_ms: int, slices: Slices) -> None:
    """Removes closed segments that ``retention.ms``, ``retention.bytes`` and the log's start no longer keep from their logs."""
    due: list[tuple[Partition, int]] = []
    async for partition in slices.over(partitions.all()):
        if partition.log.is_failed:
            continue
        try:
            offset = await _retained_from(partition, now_ms)
        except OSError as error:
            partition.log.health.on_disk_error(error)
            continue
        except KafkaError as error:  # a damaged segment: the scrubber finds it and takes the partition offline
            log.error("retention_failed", topic=partition.topic, partition=partition.index, error=error.message)
            continue
        segments = partition.log.segments
        if len(segments) > 1 and segments[1].base_offset <= offset:
            partition.log.advance_log_start_offset(offset)
            partition.start_moved()
            due.append((partition, offset))
    if not due:
        return
    try:
        await partitions.write_checkpoints()
        is_checkpointed = True
    except StorageError as error:  # a full disk must not keep itself full
        log.error("retention_without_checkpoints", reason=error.message)
        is_checkpointed = False
    for partition, offset in due:
        await _delete(partition, offset, now_ms, is_checkpointed=is_checkpointed)


async def _remove_deleted_files(partitions: PartitionStore, now_ms: int, slices: Slices) -> None:
    async for partition in slices.over(partitions.all()):
        if partition.log.has_deleted and not partition.log.is_failed:
            async with partition.changing:
                try:
                    await partition.log.remove_deleted(now_ms)
                except OSError as error:
                    partition.log.health.on_disk_error(error)


async def _retained_from(partition: Partition, now_ms: int) -> int:
    offset = await partition.log.retained_from(now_ms)
    if not partition.log.tail.has_pending:
        return offset
    try:
        await partition.flush()  # also closes the last segment, if that was what kept it
    except StorageError:  # a full disk has no room for another segment; those that are closed may go all the same
        return offset
    return await partition.log.retained_from(now_ms)


async def _delete(partition: Partition, offset: int, now_ms: int, *, is_checkpointed: bool) -> None:
    async with partition.changing:
        if partition.log.is_failed:
            return
        try:
            start_offset = min(offset, partition.log.log_start_offset)  # a follower's log may have been cut below that meanwhile
            count = await partition.log.delete_segments_below(start_offset, now_ms=now_ms, one_by_one=not is_checkpointed)
        except OSError as error:
            partition.log.health.on_disk_error(error)
            return
    start_offset = partition.log.log_start_offset
    log.info("segments_deleted", topic=partition.topic, partition=partition.index, segments=count, log_start_offset=start_offset)
