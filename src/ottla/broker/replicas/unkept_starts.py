"""Log starts that followers take over from their leader, and report to it once they are on disk: what is deleted stays deleted.

On a disk without room for the checkpoint it is tried again, not more often than a fetch that fails.
"""

from __future__ import annotations

from ottla.broker.replicas.follower_log import Checkpointing
from ottla.broker.replicas.partition import Partition
from ottla.errors import StorageError
from ottla.loggers import get_logger

log = get_logger(__name__)


class UnkeptStarts:
    """The log starts that are not on disk yet, of the partitions fetched from one leader."""

    def __init__(self, store: Checkpointing) -> None:
        self._store = store
        self._partitions: dict[Partition, None] = {}
        self._next_ms = 0

    def add(self, partition: Partition) -> None:
        self._partitions[partition] = None

    def leave(self, partition: Partition) -> None:
        """Forgets the partition, which follows another leader, or none."""
        self._partitions.pop(partition, None)

    def are_due(self, now_ms: int) -> bool:
        return bool(self._partitions) and now_ms >= self._next_ms

    async def keep(self, now_ms: int, *, backoff_ms: int) -> list[Partition]:
        """Writes to the checkpoints where they start, if there is room. Returns all that were looked at."""
        try:
            await self._store.write_checkpoints()
        except StorageError as error:
            log.error("log_start_not_written", reason=error.message)
        looked_at = list(self._partitions)
        for partition in looked_at:
            opened = partition.log
            if opened.is_failed or opened.durability.start_offset >= opened.log_start_offset:
                del self._partitions[partition]
        self._next_ms = now_ms + backoff_ms if self._partitions else 0
        return looked_at
