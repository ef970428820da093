"""The producer's batches: to which partition a record goes, and into which batch of it.

Nothing here waits: a record is added once its topic is known and there is room (``Producer._admit``). Source: KIP-480 (sticky partitions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.client.accumulator import RECORD_OVERHEAD_BYTES, Acknowledgement, PartitionQueue
from ottla.client.cluster import Cluster
from ottla.client.outgoing import Outgoing
from ottla.client.partitioner import StickyPartitioner, chosen_by, partition_for_key
from ottla.client.producer_settings import ProducerSettings
from ottla.client.sender import Sender
from ottla.types import TopicPartition


class Batching:
    """The open batches of a producer. ``queues`` is shared with the sender, which takes from it."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, sender: Sender, queues: dict[TopicPartition, PartitionQueue]) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._settings = settings
        self._batch_size = settings.batch_size
        self._sender = sender
        self._sticky = StickyPartitioner(cluster.world.random)
        self._queues = queues
        self._queues_of: dict[str, dict[int, PartitionQueue]] = {}  # the same ones; each record is looked up here

    def rows_that_fit(self, size_bytes_max: int) -> int:
        """Returns how many rows of at most that size the buffer takes now; the last one may reach over its end, as in ``add``."""
        return -((self._sender.memory.used_bytes - self._settings.buffer_memory) // (size_bytes_max + RECORD_OVERHEAD_BYTES))

    def add(self, record: Outgoing, future: Acknowledgement) -> None:
        """Appends the record to its partition's open batch."""
        queues = self._queues_of.get(record.topic)
        if queues is None:
            queues = self._queues_of[record.topic] = {}
        partition = self._partition_of(record, queues)
        queue = queues.get(partition)
        if queue is not None and not record.headers:
            added = queue.add_to_open(record, future, batch_bytes_max=self._batch_size)
            if added:
                self._sender.memory.used_bytes += added
                return
        if queue is None:
            queue = self._new_queue(record.topic, partition, queues)
        batch, size = queue.add(
            record,
            future,
            batch_bytes_max=self._settings.batch_size,
            now_ms=self._clock.monotonic_ms(),
            delivery_timeout_ms=self._settings.delivery_timeout_ms,
        )
        self._sender.memory.used_bytes += size
        if batch is not None:
            self._sender.on_batch(batch)

    def add_rows(
        self, topic: str, values: list[bytes | None], futures: Iterable[Acknowledgement], *, size_bytes_max: int, timestamp_ms: int
    ) -> None:
        """Puts records without a key, of one topic and time, into batches, as ``add`` would one by one."""
        futures = iter(futures)
        keys: list[bytes | None] = [None] * len(values)
        queues = self._queues_of.setdefault(topic, {})
        start, end = 0, len(values)
        while start < end:
            target = TopicPartition(topic, self._keyless_partition(topic, queues, size_bytes_max))
            given = {"start": start, "end": end, "size_bytes_max": size_bytes_max, "timestamp_ms": timestamp_ms}
            start = self.extend(target, keys, values, futures, **given)

    def extend(
        self, target: TopicPartition, keys: list[bytes | None], values: list[bytes | None], futures: Iterator[Acknowledgement], **rows: int
    ) -> int:
        """Appends rows to the partition's open batch, at least one; returns the first that did not fit. See ``PartitionQueue.extend``."""
        queues = self._queues_of.setdefault(target.topic, {})
        queue = queues.get(target.partition) or self._new_queue(target.topic, target.partition, queues)
        batch, size, reached = queue.extend(
            keys,
            values,
            futures,
            batch_bytes_max=self._batch_size,
            now_ms=self._clock.monotonic_ms(),
            delivery_timeout_ms=self._settings.delivery_timeout_ms,
            **rows,
        )
        self._sender.memory.used_bytes += size
        if batch is not None:
            self._sender.on_batch(batch)
        return reached

    def _new_queue(self, topic: str, partition: int, queues: dict[int, PartitionQueue]) -> PartitionQueue:
        queue = queues[partition] = PartitionQueue(TopicPartition(topic, partition))
        self._queues[queue.partition] = queue
        return queue

    def _partition_of(self, record: Outgoing, queues: dict[int, PartitionQueue]) -> int:
        if record.partition is not None:
            return record.partition
        count = len(self._cluster.topics[record.topic].partitions)
        if self._settings.partitioner is not None:
            chosen = chosen_by(self._settings.partitioner, record.topic, record.key, count)
            if chosen is not None:
                return chosen
        if count == 1:
            return 0
        if record.key is not None:
            return partition_for_key(record.key, count)
        return self._keyless_partition(record.topic, queues, record.size_bytes)

    def _keyless_partition(self, topic: str, queues: dict[int, PartitionQueue], size_bytes: int) -> int:
        """Returns the topic's current partition, or another one where the open batch has no room for such a record, or was sent."""
        count = len(self._cluster.topics[topic].partitions)
        partition = self._sticky.partition(topic, count)
        queue = queues.get(partition)
        if queue is None or queue.has_room(size_bytes, batch_bytes_max=self._batch_size):
            return partition
        self._sticky.on_batch_closed(topic, partition, count)
        return self._sticky.partition(topic, count)
