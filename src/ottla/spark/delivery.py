"""Delivering a task's records: batches with sequence numbers, one in flight to each partition, sent again until acknowledged.

One batch in flight keeps the order of a partition without any further care: a batch that is sent again carries the same
sequence, so a broker that has it already says so, and nothing is stored twice within a task. Encoding continues in the caller's
thread meanwhile.

A topic that takes only smaller batches says so by MESSAGE_TOO_LARGE: the batch is sent again in halves, and later ones of the
task are no larger than these. What open batches hold is bounded for all partitions together. Source: KIP-98.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records.batch import HEADER_SIZE, SEQUENCE_MAX, add_to_sequence
from ottla.records.builder import BatchBuilder
from ottla.records.compression import CODEC_NAMES
from ottla.spark.link import Link
from ottla.spark.options import number_of
from ottla.spark.row_slice import RowSlice
from ottla.spark.splitting import halves
from ottla.types import TopicPartition

UNSENT_BATCHES_MAX: Final = 8
ACKS_ALL: Final = -1
CREATE_TIMEOUT_MS: Final = 30_000
TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
RAISE_LIMIT: Final = "one record is larger than its topic takes: ottla config set max.message.bytes=BYTES --topic TOPIC raises that limit"


class Delivery:
    """Records of one task. ``flush`` must be called at its end."""

    def __init__(self, link: Link, options: Mapping[str, str]) -> None:
        self._link = link
        self._cluster = link.cluster
        self._codec = CODEC_NAMES[options.get("kafka.compression.type", "none").lower()]
        self.batch_bytes = max(number_of(options, "kafka.batch.size"), HEADER_SIZE + 1)  # a batch has room for a record
        self._open_bytes_max = number_of(options, "kafka.buffer.memory")
        self._timeout_ms = number_of(options, "kafka.delivery.timeout.ms")
        self._producer: tuple[int, int] | None = None  # id and epoch
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._open_bytes = 0  # of all builders
        self._topic_bytes: dict[str, int] = {}  # of a batch, for topics that have refused larger ones
        self._sequences: dict[TopicPartition, int] = {}
        self._sticky: dict[str, int] = {}
        self._locks: dict[TopicPartition, asyncio.Lock] = {}
        self._unsent: list[Future[None]] = []

    def partition_counts(self, topics: list[str], *, is_new: bool = False) -> list[int]:
        """Returns how many partitions each topic has, as known for no longer than kafka.metadata.max.age.ms; with ``is_new``, as of now.

        A topic is created where the broker does so by itself.
        """
        return self._link.run(partition_counts(self._cluster, topics, is_new=is_new))

    def any_partition(self, topic: str, count: int) -> int:
        """Returns the partition that records without a key go to at present."""
        found = self._sticky.get(topic)
        if found is None:
            found = self._sticky[topic] = random.randrange(count)
        return found

    def add(self, rows: RowSlice) -> None:
        """Adds the rows to their partition's batches, which are sent when they are full."""
        target, start, end = rows.target, rows.start, rows.end
        while start < end:
            size_max = self._topic_bytes.get(target.topic, self.batch_bytes)
            builder = self._builders.get(target)
            if builder is None:
                builder = self._builders[target] = BatchBuilder()
                self._open_bytes += builder.size_bytes
            if builder.size_bytes < size_max:
                self._open_bytes -= builder.size_bytes
                start = builder.extend(
                    rows.keys, rows.values, rows.headers, start=start, end=end, timestamp_ms=rows.timestamp_ms, size_max=size_max
                )
                self._open_bytes += builder.size_bytes
            if builder.size_bytes >= size_max:
                self._send(target)
        if self._open_bytes > self._open_bytes_max:
            self._send_largest()

    def flush(self) -> None:
        """Waits until every record is acknowledged. KafkaError when one is not, after all its tries."""
        for target in list(self._builders):
            self._send(target)
        for future in self._unsent:
            future.result()
        self._unsent.clear()

    def stop(self) -> None:
        """Sends nothing more; after ``flush`` there is nothing left to stop."""
        for future in self._unsent:
            future.cancel()

    def _send_largest(self) -> None:
        """Frees half of the room for open batches; the smaller ones go on filling."""
        for target in sorted(self._builders, key=lambda target: self._builders[target].size_bytes, reverse=True):
            if self._open_bytes <= self._open_bytes_max // 2:
                return
            self._send(target)

    def _send(self, target: TopicPartition) -> None:
        while len(self._unsent) >= UNSENT_BATCHES_MAX:
            self._unsent.pop(0).result()
        if self._producer is None:
            self._producer = self._link.run(self._take_producer_id())
        producer_id, producer_epoch = self._producer
        builder = self._builders.pop(target)
        self._open_bytes -= builder.size_bytes
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
                    raise KafkaError(response.error_code, "the broker gives no producer id")
                return response.producer_id, response.producer_epoch
            except KafkaError as error:
                await self._pause(attempt, deadline_ms, error)
                attempt += 1

    async def _deliver(self, target: TopicPartition, batch: bytearray) -> None:
        async with self._locks.setdefault(target, asyncio.Lock()):
            pieces = [batch]  # the next one last
            while pieces:
                piece = pieces.pop()
                try:
                    await self._deliver_piece(target, piece)
                except KafkaError as error:
                    if error.code not in TOO_LARGE:
                        raise
                    split = halves(piece)
                    if split is None:
                        raise KafkaError(error.code, f"{error.message}; {RAISE_LIMIT}") from None
                    before = self._topic_bytes.get(target.topic, self.batch_bytes)
                    self._topic_bytes[target.topic] = min(before, max(found.size_bytes for found in split))
                    pieces += (found.batch for found in reversed(split))

    async def _deliver_piece(self, target: TopicPartition, batch: bytearray) -> None:
        deadline_ms = self._cluster.world.clock.monotonic_ms() + self._timeout_ms
        attempt = 0
        while True:
            try:
                await self._produce(target, batch)
                return
            except KafkaError as error:
                await self._pause(attempt, deadline_ms, error)
                attempt += 1
                await self._refresh([target.topic])

    async def _pause(self, attempt: int, deadline_ms: int, error: KafkaError) -> None:
        """Waits before another try; raises the error when none would help, or time is over."""
        if not error.is_transient:
            raise error
        await self._cluster.pause(attempt, deadline_ms, error)

    async def _refresh(self, topics: list[str]) -> None:
        with contextlib.suppress(KafkaError):  # the next try says what is wrong
            await self._cluster.refresh(topics)

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
            raise KafkaError(answer.error_code, f"{target}: {answer.error_message or 'not written'}")


async def partition_counts(cluster: Cluster, topics: list[str], *, is_new: bool) -> list[int]:
    """Returns how many partitions each topic has. A missing topic is created where the broker does so by itself."""
    if is_new or cluster.age_left_ms() == 0:
        with contextlib.suppress(KafkaError):
            await cluster.refresh(topics)
    deadline_ms = cluster.world.clock.monotonic_ms() + CREATE_TIMEOUT_MS
    try:
        return [len((await cluster.topic(name, deadline_ms=deadline_ms, allow_create=True)).partitions) for name in topics]
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        way_out = "the brokers do not create topics by themselves: create it with ottla topic create, or correct its name"
        raise KafkaError(error.code, f"{error.message}, and {way_out}") from None
