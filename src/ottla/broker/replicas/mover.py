"""Replicas on their way from one log directory of this broker to another, one after the other (``storage/log/replica_copy.py``).

A partition is served as ever while it is copied, and appends are held only for the last of it. Then the copy gets the partition's
name, durably, and what it was copied from is removed: a crash in between finds two, of which the one with the higher generation
counts (``storage/directory/directory.py``). A move that the end of the broker cuts short starts again with the next start. One
that fails leaves the partition where it was, and is tried again after the others, ``RETRY_MS`` later.

Source: KIP-113.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.broker.part import Part
from ottla.broker.replicas.departures import unique_name
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.config import BrokerConfig
from ottla.errors import KafkaError, WorkerDied
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.quotas import RateMeter
from ottla.storage.directory.directory import LogDirectory
from ottla.storage.log.replica_copy import ReplicaCopy
from ottla.types import TopicPartition, uuid_text

log = get_logger(__name__)

RETRY_MS: Final = 10_000
FINISHED_BYTES_MAX: Final = 1 << 26
"""So much may be missing in the end: it is copied while appends are held."""


class ReplicaMover(Part):
    def __init__(self, world: World, config: BrokerConfig, partitions: PartitionStore) -> None:
        self._world = world
        self._config = config
        self._partitions = partitions
        window_ms: int = config["alter.log.dirs.replication.quota.window.size.seconds"] * 1000
        windows: int = config["alter.log.dirs.replication.quota.window.num"]
        self._meter = RateMeter(window_count=windows, window_ms=window_ms, least_ms=window_ms)
        self._moves: dict[TopicPartition, LogDirectory] = {}  # in the order in which they were asked for
        self._current: tuple[TopicPartition, ReplicaCopy] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_finishing = False
        self._is_stopping = False

    @property
    def rate(self) -> float:
        """Bytes a second that are copied from one log directory to another."""
        return self._meter.rate(self._world.clock.monotonic_ms())

    def _copied(self, size_bytes: int) -> None:
        self._meter.record(size_bytes, self._world.clock.monotonic_ms())

    async def start(self) -> None:
        """Moves that were cut short start again."""
        for key, directory in self._partitions.interrupted_moves.items():
            partition = self._find(key)
            if partition is not None:
                self.move(partition, directory)

    async def stop(self) -> None:
        """Stops, without cutting the last steps of a move in two."""
        self._is_stopping = True
        self._moves.clear()
        if self._task is not None:
            if not self._is_finishing:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def moving_to(self, directory: LogDirectory) -> list[tuple[TopicPartition, int, int]]:
        """Returns partitions on their way there, with the bytes that are copied and how many offsets are missing."""
        found = []
        for key, target in self._moves.items():
            partition = self._find(key)
            if target is directory and partition is not None:
                copy = self._current[1] if self._current is not None and self._current[0] == key else None
                whole = partition.log.log_end_offset - partition.log.log_start_offset
                found.append((key, copy.size_bytes, copy.offset_lag) if copy else (key, 0, whole))
        return found

    def move(self, partition: Partition, directory: LogDirectory) -> None:
        """Moves the partition to the directory, or leaves it where it is if it is there already; an earlier move of it is forgotten."""
        key = partition.key
        is_current = self._current is not None and self._current[0] == key
        if self._moves.get(key) is directory:
            return
        self._moves.pop(key, None)
        if is_current and self._task is not None and not self._is_finishing:
            self._task.cancel()
        if self._is_finishing or self._partitions.directory_of[partition] is not directory:  # it may be about to leave that directory
            self._moves[key] = directory
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
        failed: set[TopicPartition] = set()
        while self._moves:
            key, directory = next(((key, directory) for key, directory in self._moves.items() if key not in failed), (None, None))
            if key is None or directory is None:
                await self._pause()
                failed.clear()
                continue
            try:
                await self._move_if_due(key, directory)
            except (OSError, KafkaError, WorkerDied) as error:
                log.error("replica_not_moved", partition=str(key), directory=directory.path, reason=str(error), next_try_ms=RETRY_MS)
                failed.add(key)
            finally:
                self._current = None
                if key not in failed and self._moves.get(key) is directory:  # else it is to go elsewhere by now
                    del self._moves[key]

    async def _pause(self) -> None:
        over = asyncio.Event()
        timer = self._world.timers.call_later_ms(RETRY_MS, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def _find(self, key: TopicPartition) -> Partition | None:
        return self._partitions.find(key.topic, key.partition)

    async def _move_if_due(self, key: TopicPartition, directory: LogDirectory) -> None:
        partition = self._find(key)
        if partition is None or partition.log.is_failed or directory.is_failed:
            return
        source = self._partitions.directory_of[partition]
        if source is not directory:
            await self._move(key, partition, source, directory)

    async def _move(self, key: TopicPartition, partition: Partition, source: LogDirectory, directory: LogDirectory) -> None:
        disk, unique = self._world.disk, unique_name(self._world.random)
        await self._partitions.departures.make_way(key)  # it may have come from there
        generation = await source.generation(key) + 1
        future = await directory.create_future(key, uuid_text(partition.topic_id), unique, generation=generation)
        try:
            copy = ReplicaCopy(disk, partition.log, future, on_copied=self._copied)
            self._current = key, copy
            is_finished = False

            async def finish() -> None:
                nonlocal is_finished
                if is_finished := copy.missing_bytes <= FINISHED_BYTES_MAX:
                    await self._finish(partition, source, directory, copy, future, generation)

            while not is_finished:  # a segment that was cut a moment ago is copied again
                await copy.catch_up(bytes_per_second=self._bytes_per_second, settled=partition.settled)
                await partition.stand_still(finish)
        finally:
            is_elsewhere = partition.log.directory != directory.partition_path(key)
            if is_elsewhere and not self._is_stopping:  # else it records the move for the next start
                await disk.remove_tree(future)

    def _bytes_per_second(self) -> float:
        rate: int = self._config["replica.alter.log.dirs.io.max.bytes.per.second"]
        return max(1, rate)

    async def _finish(
        self, partition: Partition, source: LogDirectory, directory: LogDirectory, copy: ReplicaCopy, future: str, generation: int
    ) -> None:
        if partition.log.is_failed or directory.is_failed:
            return
        self._is_finishing = True
        try:
            await copy.finish()
            await self._switch(partition, source, directory, copy, future, generation)
            await self._partitions.relocated(partition, directory)
            log.info(
                "replica_moved", partition=str(partition.key), source=source.path, target=directory.path,
                size_bytes=partition.log.size_bytes,
            )  # fmt: skip
            await self._partitions.write_checkpoints()
        finally:
            self._is_finishing = False

    async def _switch(
        self, partition: Partition, source: LogDirectory, directory: LogDirectory, copy: ReplicaCopy, future: str, generation: int
    ) -> None:
        """Switches to the log in the directory. When that fails, the copy there may have the partition's name: it must never count."""
        key = partition.key
        try:
            path = await directory.promote(key, future)
            files = await copy.open_files(path)
        except OSError:
            if await self._world.disk.exists(future):  # it was not renamed: only one has the name
                raise
            try:
                await source.raise_generation(key, generation + 1)
            except OSError as error:
                log.error("replica_generation_not_raised", partition=str(key), directory=source.path, reason=str(error))
                partition.fail()  # it is no longer known which of the two counts: neither takes another record
            else:
                await self._partitions.departures.delete(directory, key)
            raise
        partition.log.relocate(path, files)
