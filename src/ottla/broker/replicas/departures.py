"""Replicas that are no longer this broker's: their topic was deleted, or a reassignment has taken them to other brokers (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.broker.replicas.partition import Partition
from ottla.loggers import get_logger
from ottla.metadata.image import TopicImage
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.disk_errors import is_disk_at_fault
from ottla.types import TopicPartition

log = get_logger(__name__)


class Departures:
    """Their directories are renamed at once and removed later; what a full disk keeps is tried again."""

    def __init__(self, unique: Callable[[], str], fail_folder: Callable[[LogDirectory], None]) -> None:
        self._unique = unique
        self._fail_folder = fail_folder
        self._undeleted: list[tuple[LogDirectory, TopicPartition]] = []  # that are still under their own names

    async def delete(self, folder: LogDirectory, key: TopicPartition) -> None:
        """The partition's directory has a name that ``remove_deleted`` removes, or will have one when it is called again."""
        try:
            await folder.delete_partition(key, self._unique())
        except FileNotFoundError:
            return
        except OSError as error:
            log.error("replica_not_deleted", partition=str(key), folder=folder.path, reason=str(error))
            if is_disk_at_fault(error):
                self._fail_folder(folder)
            else:
                self._undeleted.append((folder, key))

    async def remove_deleted(self, folders: Iterable[LogDirectory]) -> bool:
        """What was renamed for deletion is removed from the disk, and what could not be renamed is; False when some is left."""
        undeleted, self._undeleted = self._undeleted, []
        for folder, key in undeleted:
            if not folder.is_failed:
                await self.delete(folder, key)
        is_done = not self._undeleted
        for folder in folders:
            try:
                await folder.remove_deleted()
            except OSError as error:
                log.error("deleted_replica_not_removed", folder=folder.path, reason=str(error))
                is_done = False
                if is_disk_at_fault(error):
                    self._fail_folder(folder)
        return is_done


def moved_away(
    changes: Iterable[tuple[TopicImage, Iterable[int]]], open_here: Mapping[str, Mapping[int, Partition]], node_id: int
) -> list[Partition]:
    """The open partitions among the changed ones of which this broker no longer has a replica."""
    moved = []
    for topic, numbers in changes:
        opened = open_here.get(topic.name, {})
        for number in numbers:
            partition = opened.get(number)
            if partition is not None and partition.topic_id == topic.topic_id and node_id not in topic.partitions[number].replicas:
                moved.append(partition)
    return moved
