"""The choice of a log directory for a new partition: that with the fewest, of those with room, unless a client named one.

A client does so by AlterReplicaLogDirs. Kafka does not ask for room.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from ottla.errors import StorageError
from ottla.storage.directory.directory import AnotherTopics, LogDirectory
from ottla.storage.disk_errors import is_disk_at_fault
from ottla.types import TopicPartition

WANTED_MAX: Final = 10_000


class Placement:
    """The choice of a log directory for each new replica of one broker."""

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, LogDirectory] = {}  # of partitions that do not exist yet
        self._begun: dict[TopicPartition, LogDirectory] = {}  # that lack room or a descriptor: something of them may be there

    def prefer(self, key: TopicPartition, directory: LogDirectory) -> None:
        """Prefers that directory for the partition, which is not here, if it is made before the broker stops."""
        if len(self._wanted) >= WANTED_MAX:
            self._wanted.clear()
        self._wanted[key] = directory

    async def make(
        self,
        key: TopicPartition,
        topic_id: str,
        live: Callable[[], list[LogDirectory]],
        used: Collection[LogDirectory],
        *,
        set_aside: Callable[[LogDirectory, TopicPartition, str], Awaitable[None]],
        on_failed: Callable[[LogDirectory, OSError], None],
        is_durable: bool,
    ) -> LogDirectory:
        """Makes a directory for the partition in one of ``live``: where a disk refuses, that has failed, and the next one is tried.

        What is left there of another topic of that name, which is no longer anyone's, is ``set_aside`` first.
        """
        while directories := live():
            directory = self.choose(key, directories, used)
            try:
                try:
                    await directory.create_partition(key, topic_id, is_durable=is_durable)
                except AnotherTopics as found:
                    await set_aside(directory, key, found.topic_id)
                    await directory.create_partition(key, topic_id, is_durable=is_durable)
            except OSError as error:
                if not is_disk_at_fault(error):
                    self._begun[key] = directory
                    raise
                on_failed(directory, error)
            else:
                self._begun.pop(key, None)
                return directory
        raise StorageError("every log directory is offline")

    def forget(self, key: TopicPartition) -> LogDirectory | None:
        """Forgets the partition, which is not to be made; returns the directory in which a part of it may be."""
        return self._begun.pop(key, None)

    def choose(self, key: TopicPartition, directories: list[LogDirectory], used: Iterable[LogDirectory]) -> LogDirectory:
        """Returns one of ``directories``; ``used`` has the directory of every partition."""
        wanted = self._begun.get(key, self._wanted.pop(key, None))
        if len(directories) == 1:
            return directories[0]
        lying = list(used)
        return min(directories, key=lambda live: (live is not wanted, live.room.is_full, lying.count(live)))
