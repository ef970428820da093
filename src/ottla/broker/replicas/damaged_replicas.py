"""Replicas here whose own log is damaged, while the disk is well: where another broker leads, they are fetched again from the start.

Until then they are offline. The controller knows that they are lost, so that others lead and none counts on them. What is
damaged is not deleted but renamed, like what no topic claims: ``ottla storage strays``.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.errors import DamagedLog, DecodeError, StorageError
from ottla.loggers import get_logger
from ottla.metadata.image import PartitionImage
from ottla.metrics import DamageMeters
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.disk_errors import is_disk_at_fault
from ottla.types import NO_LEADER, TopicPartition

log = get_logger(__name__)


def counted_on(partition: PartitionImage) -> tuple[int, ...]:
    """Returns the replicas that have all that is committed, as far as the controller knows."""
    return (*partition.isr, *partition.elr, *partition.last_known_elr)


class DamagedReplicas:
    """The replicas that are not open because they are damaged, with their directories. ``on_found`` gets each that a start finds so."""

    def __init__(
        self,
        node_id: int,
        unique: Callable[[], str],
        fail_directory: Callable[[LogDirectory, OSError], None],
        meters: DamageMeters,
        on_found: Callable[[TopicPartition], None],
    ) -> None:
        self._node_id = node_id
        self._unique = unique
        self._fail_directory = fail_directory
        self._meters = meters
        self._on_found = on_found
        self._directories: dict[TopicPartition, LogDirectory] = {}

    def note(self, key: TopicPartition, directory: LogDirectory) -> None:
        self._directories[key] = directory

    def note_unopened(self, key: TopicPartition, directory: LogDirectory, error: DecodeError | StorageError) -> None:
        """Notes a replica that could not be opened for this error. Damage that was found in it is counted, and logged."""
        self.note(key, directory)
        if isinstance(error, DecodeError | DamagedLog):
            file = error.path if isinstance(error, DamagedLog) else directory.partition_path(key)
            log.error("segment_damaged", topic=key.topic, partition=key.partition, file=file, reason=error.message)
            self._meters.damaged_segments += 1
            self._on_found(key)

    def has(self, key: TopicPartition) -> bool:
        """True when it is where it was, on a disk that is well."""
        directory = self._directories.get(key)
        return directory is not None and not directory.is_failed

    def forget(self, key: TopicPartition) -> None:
        """Forgets the replica, which is no longer this broker's."""
        self._directories.pop(key, None)

    def is_replaceable(self, partition: PartitionImage) -> bool:
        """True when another broker leads it, and what is here is not counted on: all that is committed is elsewhere."""
        return partition.leader not in (NO_LEADER, self._node_id) and self._node_id not in counted_on(partition)

    async def make_way(self, key: TopicPartition) -> bool:
        """Renames the directory of a damaged replica; returns whether that is done. Where its disk refuses that, it is tried again."""
        directory = self._directories.get(key)
        if directory is None or directory.is_failed:
            return False
        try:
            path = await directory.set_aside(key, self._unique())
        except OSError as error:
            log.error("damaged_replica_not_set_aside", partition=str(key), directory=directory.path, reason=str(error))
            if is_disk_at_fault(error):
                self._fail_directory(directory, error)
            return False
        del self._directories[key]
        if path is not None:
            log.warning(
                "damaged_replica_set_aside", partition=str(key), path=path,
                hint="it is fetched again from its leader; ottla storage strays --delete removes what is not needed",
            )  # fmt: skip
        return True
