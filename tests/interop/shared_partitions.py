"""Partitions of topic t that brokers of ottla and of Kafka share: what was acknowledged is read, and is the same in both logs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.cluster.replicas import stored, stored_end
from tests.waiting import eventually

from ottla.sync import Admin, Consumer, GroupMetadata, Producer, TopicPartition

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
        directories = [directory / f"t-{index}" for directory in (ours, theirs)]
        for directory in directories:
            eventually(lambda directory=directory: stored_end(directory), lambda found: found >= end_offset)  # type: ignore[misc]
        assert stored(directories[0], end_offset) == stored(directories[1], end_offset) != b""


class Transacted:
    """Transactions of ten transactional ids, each of which some coordinator has; a third is aborted."""

    def __init__(self, bootstrap: str, partition_count: int) -> None:
        self._bootstrap = bootstrap
        self._indexes = range(partition_count)
        self._expected: Counter[bytes] = Counter()
        self._offsets: dict[str, int] = {}

    def some(self, number: int) -> None:
        for producer_number in range(10):
            name = f"tx-{producer_number}"
            with Producer(self._bootstrap, transactional_id=name) as producer:
                producer.init_transactions()
                commits = (number + producer_number) % 3 != 0
                values = [b"%s %d %d" % (name.encode(), number, index) for index in self._indexes]
                producer.begin_transaction()
                for index, value in enumerate(values):
                    producer.send("t", value, partition=index)
                producer.send_offsets_to_transaction({TopicPartition("t", 0): number + 1}, GroupMetadata(name))
                (producer.commit_transaction if commits else producer.abort_transaction)()
            if commits:
                self._expected.update(values)
                self._offsets[name] = number + 1

    def assert_read(self) -> None:
        found: Counter[bytes] = Counter()
        with Consumer(self._bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", index) for index in self._indexes])

            def read() -> Counter[bytes]:
                found.update(record.value or b"" for record in consumer.poll(200))
                return found

            eventually(read, lambda read: read == self._expected)
        with Admin(self._bootstrap) as admin:
            for name, offset in self._offsets.items():
                assert {found.offset for found in admin.committed_offsets(name).values()} == {offset}
