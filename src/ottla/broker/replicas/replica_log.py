"""The log of one replica, opened with the offsets that checkpoints have of it."""

from __future__ import annotations

from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.storage.config import LogConfig
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.recovery.damage import check_damage
from ottla.types import TopicPartition

log = get_logger(__name__)


async def open_replica_log(
    world: World, offsets: Checkpoints, key: TopicPartition, directory: LogDirectory, config: LogConfig, *, is_clean: bool, is_durable: bool
) -> tuple[PartitionLog, int]:
    """Opens the log, and returns it with the offset below which it is known to be committed; ``offsets`` then knows nothing of it.

    ``is_clean``: it was closed in order. What recovery has cut from its files is in the broker's log. StorageError for a log that is known
    to be damaged.
    """
    path = directory.partition_path(key)
    await check_damage(world.disk, path)
    known = offsets.of(key, directory, was_moved=await directory.generation(key) > 0)
    opened = await PartitionLog.open(
        world.disk, path, config=config, now_ms=world.clock.now_ms(), clean=is_clean, is_durable=is_durable, **known.for_log()
    )
    for cut in opened.cuts:
        log.warning("log_cut", partition=str(key), file=cut.path, kept_bytes=cut.size, lost_bytes=cut.lost_bytes, end_offset=cut.end_offset)
    offsets.forget(key)
    return opened, known.high_watermark
