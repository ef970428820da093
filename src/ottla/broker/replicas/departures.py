"""Replicas that are no longer this broker's: their topic was deleted, or a reassignment has taken them to other brokers (KIP-455)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ottla.broker.replicas.partition import Partition
from ottla.loggers import get_logger
from ottla.metadata.image import TopicImage
from ottla.ports import Random
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.disk_errors import is_disk_at_fault
from ottla.types import TopicPartition

log = get_logger(__name__)
Changes = list[tuple[TopicImage, list[int]]]
"""The partitions that an image changes, by topic."""


class Departures:
    """Their directories are renamed at once and removed later; what a full disk keeps is tried again."""

    def __init__(self, unique: Callable[[], str], fail_directory: Callable[[LogDirectory, OSError], None]) -> None:
        self._unique = unique
        self._fail_directory = fail_directory
        self._undeleted: list[tuple[LogDirectory, TopicPartition]] = []  # that are still under their own names
        self._turn = asyncio.Lock()  # of renaming those: a replica that has taken the name by then must not be renamed
        self._departed, self._removed = 1, 0  # so many have gone, what a start finds as one, and so many of them are off the disks

    @property
    def has_some(self) -> bool:
        """Whether something may be left of them on a disk: ``remove_deleted`` is to be called."""
        return self._removed < self._departed

    async def delete(self, directory: LogDirectory, key: TopicPartition) -> None:
        """Renames the partition's directory for ``remove_deleted``, or leaves it to another call."""
        problem = await self._rename(directory, key)
        self._departed += 1  # not before: a removal that runs meanwhile does not see it
        if problem is not None and not is_disk_at_fault(problem):
            self._undeleted.append((directory, key))

    async def delete_all(self, lying: Mapping[TopicPartition, LogDirectory]) -> None:
        """Deletes replicas that are not open, each in its directory."""
        for key, directory in lying.items():
            await self.delete(directory, key)

    async def make_way(self, key: TopicPartition) -> None:
        """Frees the partition's name of all that is to be deleted, in any directory; OSError where a disk still refuses to rename it."""
        if not self._undeleted and not self._turn.locked():
            return
        async with self._turn:
            for place in [place for place in self._undeleted if place[1] == key]:
                problem = await self._rename(*place)
                if problem is not None and not place[0].is_failed:
                    raise problem
                self._undeleted.remove(place)

    async def remove_deleted(self, directories: Iterable[LogDirectory]) -> None:
        """Removes from the disk what was renamed for deletion, and what could not be renamed; else ``has_some`` is True."""
        departed = self._departed
        async with self._turn:
            for place in list(self._undeleted):
                if place[0].is_failed or await self._rename(*place) is None:
                    self._undeleted.remove(place)
        is_done = not self._undeleted
        for directory in directories:
            try:
                await directory.remove_deleted()
            except OSError as error:
                log.error("deleted_replica_not_removed", directory=directory.path, reason=str(error))
                is_done = False
                if is_disk_at_fault(error):
                    self._fail_directory(directory, error)
        if is_done:
            self._removed = departed

    async def _rename(self, directory: LogDirectory, key: TopicPartition) -> OSError | None:
        """Returns None when the directory no longer has the partition's name, or the disk's error."""
        try:
            await directory.delete_partition(key, self._unique())
        except OSError as error:
            log.error("replica_not_deleted", partition=str(key), directory=directory.path, reason=str(error))
            if is_disk_at_fault(error):
                self._fail_directory(directory, error)
            return error
        return None


def unique_name(random: Random) -> str:
    """Returns what sets the name of a directory apart from all others, of the same replica, too."""
    return f"{random.getrandbits(128):032x}"


def moved_away(changes: Changes, open_here: Mapping[str, Mapping[int, Partition]], node_id: int) -> list[Partition]:
    """Returns the open partitions among the changed ones of which this broker no longer has a replica."""
    moved = []
    for topic, numbers in changes:
        opened = open_here.get(topic.name, {})
        for number in numbers:
            partition = opened.get(number)
            if partition is not None and partition.topic_id == topic.topic_id and node_id not in topic.partitions[number].replicas:
                moved.append(partition)
    return moved
