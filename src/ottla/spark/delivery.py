"""Delivering a task's records: batches with sequence numbers, one in flight to each partition, sent again until acknowledged.

One batch in flight keeps the order of a partition without any further care: a batch that is sent again carries the same
sequence, so a broker that has it already says so, and nothing is stored twice within a task. Encoding goes on in the caller's
thread meanwhile. Source: KIP-98.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from ottla.errors import RETRIABLE, ErrorCode, KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records.batch import HEADER_SIZE, SEQUENCE_MAX, add_to_sequence
from ottla.records.builder import BatchBuilder
from ottla.records.compression import CODEC_NAMES
from ottla.spark.link import Link
from ottla.spark.options import invalid
from ottla.types import Headers, TopicPartition

UNSENT_BATCHES_MAX: Final = 8
ACKS_ALL: Final = -1
CREATE_TIMEOUT_MS: Final = 30_000


class Delivery:
    """Records of one task. ``flush`` must be called at its end."""

    def __init__(self, link: Link, options: Mapping[str, str]) -> None:
        self._link = link
        self._cluster = link.cluster
        codec = options.get("kafka.compression.type", "none").lower()
        if codec not in CODEC_NAMES:
            raise invalid(f"kafka.compression.type={codec} is not one of {', '.join(CODEC_NAMES)}")
        self._codec = CODEC_NAMES[codec]
        self.batch_bytes = max(int(options.get("kafka.batch.size", 262_144)), HEADER_SIZE + 1)  # a batch has room for a record
        self._timeout_ms = int(options.get("kafka.delivery.timeout.ms", 120_000))
        self._producer: tuple[int, int] | None = None  # id and epoch
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._sticky: dict[str, int] = {}
        self._locks: dict[TopicPartition, asyncio.Lock] = {}
        self._unsent: list[Future[None]] = []

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; it is created where the broker does so by itself."""
        deadline_ms = time.monotonic_ns() // 1_000_000 + CREATE_TIMEOUT_MS
        return len(self._link.run(self._cluster.topic(topic, deadline_ms=deadline_ms, allow_create=True)).partitions)

    def any_partition(self, topic: str, count: int) -> int:
        """The partition that records without a key go to at present."""
        found = self._sticky.get(topic)
        if found is None:
            found = self._sticky[topic] = random.randrange(count)
        return found

    def add(
        self,
        target: TopicPartition,
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[Headers] | None,
        *,
        start: int,
        end: int,
    ) -> None:
        """The rows from ``start`` to ``end`` are in their partition's batches, which go out when they are full."""
        now_ms = time.time_ns() // 1_000_000
        while start < end:
            builder = self._builders.get(target)
            if builder is None:
                builder = self._builders[target] = BatchBuilder()
            start = builder.extend(keys, values, headers, start=start, end=end, timestamp_ms=now_ms, size_max=self.batch_bytes)
            if builder.size_bytes >= self.batch_bytes:
                self._send(target)

    def flush(self) -> None:
        """Every record is acknowledged. KafkaError when one is not, after all its tries."""
        for target in list(self._builders):
            self._send(target)
        for future in self._unsent:
            future.result()
        self._unsent.clear()

    def stop(self) -> None:
        """Nothing more is sent; after ``flush`` there is nothing left to stop."""
        for future in self._unsent:
            future.cancel()

    def _send(self, target: TopicPartition) -> None:
        while len(self._unsent) >= UNSENT_BATCHES_MAX:
            self._unsent.pop(0).result()
        if self._producer is None:
            self._producer = self._link.run(self._take_producer_id())
        producer_id, producer_epoch = self._producer
        builder = self._builders.pop(target)
        self._sticky.pop(target.topic, None)
        sequence = self._sequences.get(target, 0)
        self._sequences[target] = add_to_sequence(sequence, builder.count)
        batch = builder.build(self._codec, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
        self._unsent.append(self._link.start(self._deliver(target, batch)))

    # On the link's loop

    async def _take_producer_id(self) -> tuple[int, int]:
        deadline_ms = self._cluster.world.clock.monotonic_ms() + self._timeout_ms
        attempt = 0
        while True:
            try:
                response = await self._cluster.ask(None, InitProducerIdRequest(None, SEQUENCE_MAX), InitProducerIdResponse)
                if response.error_code:
                    raise KafkaError(response.error_code, "no producer id")
                return response.producer_id, response.producer_epoch
            except KafkaError as error:
                await self._pause(attempt, deadline_ms, error)
                attempt += 1

    async def _deliver(self, target: TopicPartition, batch: bytearray) -> None:
        async with self._locks.setdefault(target, asyncio.Lock()):
            deadline_ms = self._cluster.world.clock.monotonic_ms() + self._timeout_ms
            attempt = 0
            while True:
                try:
                    await self._produce(target, batch)
                    return
                except KafkaError as error:
                    await self._pause(attempt, deadline_ms, error)
                    attempt += 1
                    await self._refresh(target.topic)

    async def _pause(self, attempt: int, deadline_ms: int, error: KafkaError) -> None:
        """Waits before another try; raises the error when none would help, or time is over."""
        if error.code not in RETRIABLE and error.code != ErrorCode.BROKER_NOT_AVAILABLE:
            raise error
        await self._cluster.pause(attempt, deadline_ms, error)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._cluster.refresh([topic])
        except KafkaError:
            return  # the next try says what is wrong

    async def _produce(self, target: TopicPartition, batch: bytearray) -> None:
        leader = self._cluster.leader(target)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{target} has no leader")
        data = TopicProduceData(target.topic, self._cluster.topics[target.topic].topic_id)
        data.partition_data.append(PartitionProduceData(target.partition, batch))
        request = ProduceRequest(None, ACKS_ALL, self._cluster.request_timeout_ms, [data])
        response = await self._cluster.ask(leader, request, ProduceResponse)
        [answer] = [answer for topic in response.responses for answer in topic.partition_responses]
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            raise KafkaError(answer.error_code, answer.error_message or f"produce to {target}")
