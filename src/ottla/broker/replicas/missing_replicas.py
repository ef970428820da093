"""Replicas that had records when the broker stopped, and whose directories a start does not find, while the log directory is there.

Made again at once, one could lead, since it is in sync as far as the controller knows, and the others would cut off what was acknowledged.
So it is offline, and lost, until others lead and it is not counted on (``damaged_replicas.py``). What is
removed while it is open is treated alike.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence

from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.damaged_replicas import counted_on
from ottla.broker.replicas.partition import Partition
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.metadata.image import PartitionImage
from ottla.metrics import DamageMeters
from ottla.ports import Disk
from ottla.storage.directory.directory import LogDirectory
from ottla.types import TopicPartition

log = get_logger(__name__)


class MissingReplica(StorageError):
    """The replica that was in ``directory`` is missing; others may have its records."""

    def __init__(self, key: TopicPartition, directory: LogDirectory) -> None:
        path = directory.partition_path(key)
        super().__init__(f"{path} is missing, and had records; where no other replica has them, make it, empty, and restart")
        self.directory = directory


class MissingReplicas:
    """The look for them. ``known`` is what the last process has left in the checkpoints."""

    def __init__(self, node_id: int, directories: Sequence[LogDirectory], known: Checkpoints) -> None:
        self._node_id = node_id
        self._directories = directories
        self._known = known
        self._is_over = False
        self._seen: set[TopicPartition] = set()

    def end(self) -> None:
        """Ends the look: all that was here has been asked for, and what comes is new, whatever the checkpoints say of its name."""
        self._is_over = True
        self._seen.clear()

    def pass_over(self, key: TopicPartition) -> None:
        """Takes note that the replica is known to be damaged: once that is set aside, it is not missing."""
        self._seen.add(key)

    def check(self, key: TopicPartition, partition: PartitionImage) -> None:
        """Raises MissingReplica, once, for a replica that was not found, had records, and is counted on.

        Of one that no other broker has the records are lost; one that is not counted on is fetched again.
        """
        had = {directory: max(self._known.of(key, directory, was_moved=False)) for directory in self._directories}
        end_offset = max(had.values(), default=0)
        if end_offset == 0 or self._is_over or key in self._seen:
            return
        self._seen.add(key)
        self._known.damage.missing_replicas += 1
        is_only_one = len(partition.replicas) == 1
        if self._node_id in counted_on(partition) and not is_only_one:
            raise MissingReplica(key, max(had, key=had.__getitem__))
        hint = "there is no other replica: its records are lost" if is_only_one else "it is fetched again from its leader"
        (log.error if is_only_one else log.warning)("replica_missing", partition=str(key), end_offset=end_offset, hint=hint)


async def fail_removed(disk: Disk, partitions: AsyncIterable[Partition], meters: DamageMeters) -> None:
    """Fails the logs whose directories were removed while they are open: the files that they write are freed when they are closed."""
    async for partition in partitions:
        opened, path = partition.log, partition.log.directory
        is_known = opened.health.is_retired or opened.health.reason  # deleted, or said before; a failed read may have failed the log first
        if await disk.exists(path) or is_known or opened.directory != path:
            continue
        log.error("replica_removed", topic=partition.topic, partition=partition.index, path=path)
        meters.missing_replicas += 1
        opened.health.reason = f"its directory was removed: {path}"
        partition.fail()
