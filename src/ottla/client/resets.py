"""Positions that are known only as the start or the end of their partitions: looked up at the leaders.

Each leader is asked by itself. One that does not answer keeps back no partition of another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from ottla.client.background import background
from ottla.client.cluster import Cluster
from ottla.client.offset_lookup import ask_leader
from ottla.client.positions import Positions
from ottla.errors import KafkaError
from ottla.types import TopicPartition

Recover = Callable[[dict[TopicPartition, KafkaError], dict[TopicPartition, int]], Awaitable[None]]


class Resets:
    """The look-ups of one consumer: at most one to each broker."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        isolation_level: int,
        *,
        recover: Recover,
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """Calls ``recover`` with partitions that failed and the epochs that they were asked in, and ``ended`` at the end of a look-up."""
        self._cluster = cluster
        self._positions = positions
        self._isolation_level = isolation_level
        self._recover = recover
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[int] = set()  # leaders
        self._recovering: set[TopicPartition] = set()

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        yield from self._tasks

    def start(self, wanted: Mapping[int, dict[TopicPartition, int]]) -> None:
        """Asks the leaders for positions that are to be the start or the end. One that is being asked is asked for more afterwards."""
        for leader, times in wanted.items():
            due = {partition: timestamp for partition, timestamp in times.items() if partition not in self._recovering}
            if due and leader not in self._asked:
                self._asked.add(leader)
                versions = {partition: self._positions.of(partition).version for partition in due}
                task = background(self._look_up(leader, due, versions))
                self._tasks.add(task)
                task.add_done_callback(self._looked_up)

    def _looked_up(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended(task)

    async def _look_up(self, leader: int, times: dict[TopicPartition, int], versions: dict[TopicPartition, int]) -> None:
        sent = {partition: self._cluster.leader_epoch(partition) for partition in times}
        try:
            found, problems = await ask_leader(self._cluster, leader, times, self._isolation_level)
        finally:
            self._asked.discard(leader)
        for partition, (offset, _, _) in found.items():
            if self._waits(partition, versions):
                state = self._positions.of(partition)
                state.position, state.seek_timestamp = offset, None
                state.failures = state.retry_ms = 0
        problems = {partition: problem for partition, problem in problems.items() if self._waits(partition, versions)}
        if problems:
            self._recovering.update(problems)
            try:
                await self._recover(problems, sent)
            finally:
                self._recovering.difference_update(problems)

    def _waits(self, partition: TopicPartition, versions: Mapping[TopicPartition, int]) -> bool:
        """Returns whether the position is what was asked for, and unknown. A leader that hung may answer long after the next one has."""
        state = self._positions.get(partition)
        return state is not None and state.version == versions[partition] and state.position is None
