"""Replicas on their way from one data folder of this broker to another, one after the other (``storage/replica_copy.py``).

A partition is served as ever while it is copied, and stands still only for the last of it. Then the copy gets the partition's
name, durably, and what it was copied from goes: a crash in between finds two that are alike. A move that the end of the broker
cuts short begins again with the next start. What fails leaves the partition where it was.

Source: KIP-113.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.broker.partitions import key_of
from ottla.errors import KafkaError
from ottla.loggers import get_logger
from ottla.storage.replica_copy import ReplicaCopy
from ottla.types import TopicPartition, uuid_text

if TYPE_CHECKING:
    from ottla.broker.node import Broker
    from ottla.broker.partition import Partition
    from ottla.storage.folder import DataFolder

log = get_logger(__name__)

UNUSED: Final = "unused"  # in the place of an id, in the name of a copy that could not be opened


class ReplicaMover:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._moves: dict[TopicPartition, DataFolder] = {}  # in the order in which they were asked for
        self._current: tuple[TopicPartition, ReplicaCopy] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_finishing = False
        self._is_stopping = False

    def start(self) -> None:
        """Moves that were cut short begin again."""
        for key, folder in self._broker.partitions.interrupted_moves.items():
            partition = self._broker.partitions.by_name.get(key.topic, {}).get(key.partition)
            if partition is not None:
                self.move(partition, folder)

    async def stop(self) -> None:
        """The last steps of a move are not cut in two."""
        self._is_stopping = True
        self._moves.clear()
        if self._task is not None:
            if not self._is_finishing:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def moving_to(self, folder: DataFolder) -> list[tuple[TopicPartition, int, int]]:
        """Partitions on their way there, with the bytes that are copied and how many offsets are missing."""
        found = []
        for key, target in self._moves.items():
            partition = self._broker.partitions.by_name.get(key.topic, {}).get(key.partition)
            if target is folder and partition is not None:
                copy = self._current[1] if self._current is not None and self._current[0] == key else None
                whole = partition.log.log_end_offset - partition.log.log_start_offset
                found.append((key, copy.size_bytes, copy.offset_lag) if copy else (key, 0, whole))
        return found

    def move(self, partition: Partition, folder: DataFolder) -> None:
        """The partition will lie in the folder, or stays where it is if it is there already; an earlier move of it is forgotten."""
        key = key_of(partition)
        is_current = self._current is not None and self._current[0] == key
        if self._moves.get(key) is folder:
            return
        self._moves.pop(key, None)
        if is_current and self._task is not None and not self._is_finishing:
            self._task.cancel()
        if self._broker.partitions.folder_of(partition) is not folder:
            self._moves[key] = folder
            if self._task is None:
                self._begin()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._task = self._current = None
        if not task.cancelled() and task.exception() is not None:
            log.error("replica_mover_failed", exc_info=task.exception())
        if self._moves:
            self._begin()

    async def _work(self) -> None:
        while self._moves:
            key, folder = next(iter(self._moves.items()))
            partition = self._broker.partitions.by_name.get(key.topic, {}).get(key.partition)
            try:
                if partition is not None and not partition.log.is_failed and not folder.is_failed:
                    await self._move(key, partition, folder)
            except (OSError, KafkaError) as error:
                log.error("replica_not_moved", partition=str(key), folder=folder.path, reason=str(error))
            finally:
                self._current = None
                if self._moves.get(key) is folder:  # else it was forgotten, or is to go elsewhere by now
                    del self._moves[key]

    async def _move(self, key: TopicPartition, partition: Partition, folder: DataFolder) -> None:
        disk, unique = self._broker.world.disk, f"{self._broker.world.random.getrandbits(128):032x}"
        future = await folder.create_future(key, uuid_text(partition.topic_id), unique)
        try:
            copy = ReplicaCopy(disk, partition.log, future)
            self._current = key, copy
            rate = max(1, self._broker.config["replica.alter.log.dirs.io.max.bytes.per.second"])
            await copy.catch_up(bytes_per_second=rate)
            await partition.stand_still(lambda: self._finish(partition, folder, copy, future))
        finally:
            if partition.log.folder != folder.partition_path(key) and not self._is_stopping:  # else it tells the next start of the move
                await disk.remove_tree(future)

    async def _finish(self, partition: Partition, folder: DataFolder, copy: ReplicaCopy, future: str) -> None:
        partitions, key = self._broker.partitions, key_of(partition)
        is_there = partitions.by_name.get(key.topic, {}).get(key.partition) is partition
        if not is_there or partition.log.is_failed or folder.is_failed:
            return
        self._is_finishing = True
        try:
            await copy.finish()
            path = await folder.promote(key, future)
            try:
                partition.log.relocate(path, await copy.open_files(path))
            except OSError:
                await folder.delete_partition(key, UNUSED)
                raise
            old = partitions.folder_of(partition)
            await partitions.relocated(partition, folder)
            await partitions.write_checkpoints()
            log.info("replica_moved", partition=str(key), source=old.path, target=folder.path, size_bytes=partition.log.size_bytes)
        finally:
            self._is_finishing = False
