"""Partitions of topic t that brokers of ottla and of Kafka share: what was acknowledged is read, and is the same in both logs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.replicas import stored, stored_end
from tests.waiting import eventually

from ottla.sync import Consumer, Producer, TopicPartition

COUNT = 500
FETCH_WAIT_SECONDS = 2.0
"""Four times as long as a follower's fetch waits at its leader (replica.fetch.wait.max.ms)."""


def let_its_fetch_end(pause: Callable[[], None]) -> None:
    """The follower is paused, and its last fetch has been answered: what its leader appends from now on, it cannot have."""
    pause()
    time.sleep(FETCH_WAIT_SECONDS)


class Records:
    """What was acknowledged, by partition and offset."""

    def __init__(self, bootstrap: str, partition_count: int) -> None:
        self._bootstrap = bootstrap
        self._indexes = range(partition_count)
        self._number = 0
        self.kept: dict[tuple[int, int], bytes] = {}

    def send(self, *indexes: int) -> None:
        """Records to these partitions; each is acknowledged by all that are in sync."""
        with Producer(self._bootstrap) as producer:
            values = [b"value-%d" % (self._number + step) for step in range(COUNT * len(indexes))]
            sent = [producer.send("t", value, partition=indexes[step % len(indexes)]) for step, value in enumerate(values)]
            for value, future in zip(values, sent, strict=True):
                found = future.result(60)
                self.kept[found.partition, found.offset] = value
        self._number += len(values)

    def assert_read(self) -> None:
        """A consumer gets them, and nothing else."""
        found: dict[tuple[int, int], bytes | None] = {}
        with Consumer(self._bootstrap) as consumer:
            wanted = [TopicPartition("t", index) for index in self._indexes]
            ends = consumer.end_offsets(wanted)
            consumer.assign(wanted)
            consumer.seek_to_beginning()
            while any(consumer.position(partition) < ends[partition] for partition in wanted):
                found |= {(record.partition, record.offset): record.value for record in consumer.poll(5_000)}
        assert found == self.kept

    def assert_equal(self, index: int, ours: Path, theirs: Path) -> None:
        """The logs of the partition in these log directories, byte for byte, as far as was acknowledged."""
        end_offset = 1 + max(offset for partition, offset in self.kept if partition == index)
        folders = [folder / f"t-{index}" for folder in (ours, theirs)]
        for folder in folders:
            eventually(lambda folder=folder: stored_end(folder), lambda found: found >= end_offset)  # type: ignore[misc]
        assert stored(folders[0], end_offset) == stored(folders[1], end_offset) != b""
