"""The producer: records in, acknowledgements out.

``send`` puts a record into its partition's open batch and returns a future; the sender (``sender.py``) takes batches that
are full or have lingered. Idempotence is the default: a retry is never stored twice, and order is kept.

Source: KIP-98 (idempotence), KIP-480 (sticky partitions), KIP-679 (strong defaults).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.accumulator import PartitionQueue, RecordMetadata
from ottla.client.cluster import Cluster
from ottla.client.partitioner import StickyPartitioner, partition_for_key
from ottla.client.sender import Sender
from ottla.errors import ErrorCode, KafkaError
from ottla.records.compression import CODEC_NAMES
from ottla.types import TopicPartition

_ACKS: Final = {"0": 0, "1": 1, "all": -1, "-1": -1}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Kafka's producer configuration, by its names."""

    acks: str = "all"
    enable_idempotence: bool = True
    linger_ms: int = 5
    batch_size: int = 16_384
    compression_type: str = "none"
    max_request_size: int = 1_048_576
    buffer_memory: int = 33_554_432
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.acks not in _ACKS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"acks={self.acks}: 0, 1 and all are known")
        if self.compression_type not in CODEC_NAMES:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"compression.type={self.compression_type} is not one of {', '.join(CODEC_NAMES)}")


class Producer:
    """Made on a running loop. Owns the cluster: ``close`` closes its connections."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._settings = settings
        self._sticky = StickyPartitioner(cluster.world.random)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        acks = _ACKS[settings.acks]
        self._sender = Sender(
            cluster,
            self._queues,
            acks=acks,
            is_idempotent=settings.enable_idempotence and acks == -1,
            codec=CODEC_NAMES[settings.compression_type],
            linger_ms=settings.linger_ms,
            request_bytes_max=settings.max_request_size,
        )
        self._is_closed = False

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """The record is in the buffer; the future tells where it landed, or raises why it did not.

        Waits only for the topic's metadata and for room in the buffer, at most ``max_block_ms``. MESSAGE_TOO_LARGE at once
        for a record that no request could hold.
        """
        if self._is_closed:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the producer is closed")
        size = len(key or b"") + len(value or b"")
        if size > self._settings.max_request_size:
            text = f"a record of {size} bytes is larger than max.request.size={self._settings.max_request_size}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
        found = self._cluster.topics.get(topic)
        if found is None or not found.partitions or self._sender.buffered_bytes >= self._settings.buffer_memory:
            deadline_ms = self._world.clock.monotonic_ms() + self._settings.max_block_ms
            found = await self._cluster.topic(topic, deadline_ms=deadline_ms, allow_create=True)
            await self._sender.wait_for_room(self._settings.buffer_memory, deadline_ms)
        count = len(found.partitions)
        if partition is None:
            partition = partition_for_key(key, count) if key is not None else self._stick(topic, count, size)
        elif partition not in found.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {partition}")
        return self._add(TopicPartition(topic, partition), key, value, headers, timestamp_ms)

    def _stick(self, topic: str, count: int, size_bytes: int) -> int:
        """The topic's current partition, or another one where its batch is full or gone."""
        partition = self._sticky.partition(topic, count)
        queue = self._queues.get(TopicPartition(topic, partition))
        if queue is None or queue.has_room(size_bytes, batch_bytes_max=self._settings.batch_size):
            return partition
        self._sticky.on_batch_closed(topic, partition, count)
        return self._sticky.partition(topic, count)

    def _add(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
    ) -> asyncio.Future[RecordMetadata]:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        is_new, is_full, size = queue.add(
            key,
            value,
            headers,
            self._world.clock.now_ms() if timestamp_ms is None else timestamp_ms,
            future,
            batch_bytes_max=self._settings.batch_size,
            now_ms=self._world.clock.monotonic_ms(),
            delivery_timeout_ms=self._settings.delivery_timeout_ms,
        )
        self._sender.buffered_bytes += size
        if is_full or is_new:
            self._sender.wake()
        return future

    async def flush(self) -> None:
        """Every record sent before the call is acknowledged or has failed."""
        await self._sender.flush()

    async def close(self) -> None:
        """What was sent is acknowledged or has failed; connections are closed."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._sender.close()
        await self._cluster.close()
