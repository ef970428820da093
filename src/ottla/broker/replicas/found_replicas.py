"""Partition directories that a start finds, until a topic claims them.

Nothing that was found is deleted because the metadata does not name it: it is renamed ``<topic>-<partition>.<id>-stray`` and
kept. That applies to a replica that no topic of the metadata claims, and to one of an earlier topic of the same name. Only what
holds no record is removed, and of two copies of one replica the copy that a move left behind (``storage/directory/directory.py``).

Source: Kafka's handling of stray replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ottla.loggers import get_logger
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.disk_errors import is_disk_at_fault
from ottla.types import TopicPartition

log = get_logger(__name__)


class FoundReplicas:
    def __init__(
        self, directories: Sequence[LogDirectory], unique: Callable[[], str], fail_directory: Callable[[LogDirectory, OSError], None]
    ) -> None:
        self._directories = directories
        self._unique = unique
        self._fail_directory = fail_directory
        self._places: dict[TopicPartition, list[tuple[LogDirectory, str | None]]] = {}  # with the topic id that the directory names
        self._claimed: set[TopicPartition] = set()  # by a topic, which could not open them yet
        self._turn = asyncio.Lock()  # what one topic claims is not set aside meanwhile

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._places

    def in_directory(self, directory: LogDirectory) -> list[TopicPartition]:
        """Returns the replicas found there that no topic has claimed yet."""
        return [key for key, places in self._places.items() if any(place is directory for place, _ in places)]

    async def scan(
        self, read: Callable[[LogDirectory], Awaitable[None]]
    ) -> tuple[dict[TopicPartition, LogDirectory], dict[LogDirectory, OSError]]:
        """Finds what is there, and removes what deletions had left. ``read`` is called with each directory, too.

        Returned are the moves that were cut short, and where they went; and the errors of directories whose disks fail: of these nothing
        is known.
        """
        interrupted: dict[TopicPartition, LogDirectory] = {}
        failed: dict[LogDirectory, OSError] = {}
        for directory in self._directories:
            try:
                await directory.remove_deleted()
                moves, found = await directory.remove_futures(), await directory.partitions()
                await read(directory)
            except OSError as error:
                if not is_disk_at_fault(error):
                    raise
                log.error("log_dir_not_read", directory=directory.path, reason=str(error))
                failed[directory] = error
                continue
            interrupted |= dict.fromkeys(moves, directory)
            for key, topic_id in found.items():
                self._places.setdefault(key, []).append((directory, topic_id))
        return interrupted, failed

    async def claim(self, key: TopicPartition, topic_id: str) -> LogDirectory | None:
        """Returns where the partition of that topic is, None when nothing of it was found. Others of its name are set aside.

        When a disk refuses something it may be asked again: what was found is known until the claim has an answer.
        """
        async with self._turn:
            return await self._claim(key, topic_id)

    async def _claim(self, key: TopicPartition, topic_id: str) -> LogDirectory | None:
        places = self._places.get(key, [])
        own = [directory for directory, found_id in places if found_id == topic_id]
        if len(own) > 1:
            ranks = [(await directory.generation(key), await directory.log_bytes(key)) for directory in own]
            best = max(ranks)
            log.warning("replica_found_twice", partition=str(key), kept=own[ranks.index(best)].path)
            for directory, rank in zip(own, ranks):
                if rank[0] < best[0]:  # it was moved away from there: all that it has came along
                    await directory.delete_partition(key, self._unique())
                    places.remove((directory, topic_id))
            own = [own[ranks.index(best)]]
        for directory, found_id in list(places):
            if directory not in own:
                await self.set_aside(directory, key, found_id)
                places.remove((directory, found_id))
        self._places.pop(key, None)
        return own[0] if own else None

    def keep(self, key: TopicPartition) -> None:
        """Keeps the replica in its place: the image has it, and it is to be claimed again once there are descriptors, or room."""
        self._claimed.add(key)

    async def set_aside_unclaimed(self) -> None:
        """Renames what no topic has claimed, except the metadata log, which is no topic's.

        Where a disk refuses that, it is known as before, and hinders no replica that claims it.
        """
        for key in sorted(self._places):
            async with self._turn:
                if key in self._claimed:
                    continue
                for place in list(self._places.get(key, ())):  # none where it was claimed meanwhile
                    if key.topic.startswith("__cluster_metadata") or await self._is_set_aside(key, *place):
                        self._places[key].remove(place)
                if not self._places.get(key, True):
                    del self._places[key]

    async def _is_set_aside(self, key: TopicPartition, directory: LogDirectory, topic_id: str | None) -> bool:
        try:
            await self.set_aside(directory, key, topic_id)
        except OSError as error:
            log.error("stray_replica_not_set_aside", partition=str(key), directory=directory.path, reason=str(error))
            if is_disk_at_fault(error):
                self._fail_directory(directory, error)
            return False
        return True

    async def set_aside(self, directory: LogDirectory, key: TopicPartition, topic_id: str | None) -> None:
        """Frees the partition's name there: what belongs to that topic is kept under another name."""
        if await directory.log_bytes(key) < (1 if topic_id is None else 0):  # its creation was cut short
            await directory.delete_partition(key, self._unique())
        elif (path := await directory.set_aside(key, self._unique())) is not None:
            log.warning(
                "stray_replica_kept", partition=str(key), topic_id=topic_id, path=path,
                hint="the metadata does not name it; ottla storage strays --delete removes what is not needed",
            )  # fmt: skip
