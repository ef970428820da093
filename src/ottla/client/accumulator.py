"""Records gathered into batches, one queue of batches for each partition.

A batch is closed when it is full, when it has lingered, or when the sender takes it; from then on it has its place in the
producer's sequence, and is sent again under the same numbers until it is acknowledged or given up. Source: KIP-98.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat
from typing import Any, Protocol

import msgspec

from ottla.client.failures import Pending, of_record
from ottla.client.outgoing import Outgoing
from ottla.errors import ErrorCode, KafkaError, UndeliveredRecord
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import iterate_records
from ottla.types import TopicPartition

SEQUENCE_COUNT = 2**31
WINDOW_BATCHES = 5
RECORD_OVERHEAD_BYTES = 32  # at most: lengths, time and offset of a record, without headers


def row_bytes_max(batch_bytes_max: int) -> int:
    """Returns the largest row of ``PartitionQueue.extend``: a batch has room for two. Below 0 for batches too small for that."""
    return (batch_bytes_max - HEADER_SIZE - 1) // 2 - RECORD_OVERHEAD_BYTES


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """The place where a record landed. ``offset`` is -1 with acks=0; ``timestamp_ms`` is the broker's when it stamps records."""

    topic: str
    """The topic that it was sent to."""
    partition: int
    """The number of the partition that was given or chosen."""
    offset: int
    """The record's place in the partition; -1 with ``acks=0``, where no broker answers."""
    timestamp_ms: int
    """Milliseconds since 1970: the record's own time, or that of the broker where the topic has message.timestamp.type=LogAppendTime."""


class Acknowledgement(Pending, Protocol):
    """The future of one record."""

    @staticmethod
    def land(records: Iterable[Any], places: Iterable[RecordMetadata]) -> None:
        """Gives each of these futures its result, unless it has one: a call a batch costs less than calls a record."""
        ...


class ProducerBatch:
    """Records on their way to one partition."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "builder",
        "created_ms",
        "deadline_ms",
        "finished",
        "futures",
        "index",
        "is_closed",
        "not_before_ms",
        "numbered_for",
        "partition",
        "problem",
        "sent_epoch",
        "timestamps",
    )

    def __init__(self, partition: TopicPartition, index: int, *, created_ms: int, deadline_ms: int) -> None:
        self.partition = partition
        self.index = index  # batches of a partition are opened and sent in this order
        self.builder = BatchBuilder()
        self.futures: list[Acknowledgement] = []
        # Its result is empty, or has the smaller batches in which its records went on.
        self.finished: asyncio.Future[Sequence[ProducerBatch]] = asyncio.get_running_loop().create_future()
        self.timestamps: list[int] = []
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        self.base_sequence = -1  # set when the batch is first sent, and kept
        self.numbered_for = -1  # the producer id that the number belongs to
        self.is_closed = False  # takes no further records
        self.not_before_ms = 0  # of the next attempt
        self.attempts = 0
        self.sent_epoch = -1  # the leader epoch that was known when it was sent last
        self.problem: KafkaError | None = None  # why the last attempt failed

    @property
    def count(self) -> int:
        return len(self.futures)

    def done(self, base_offset: int, append_time_ms: int) -> None:
        """Gives each record's future its result."""
        topic, partition = self.partition.topic, self.partition.partition
        offsets = repeat(-1) if base_offset < 0 else count(base_offset)
        times_ms = self.timestamps if append_time_ms < 0 else repeat(append_time_ms)
        places = map(RecordMetadata, repeat(topic), repeat(partition), offsets, times_ms)
        type(self.futures[0]).land(self.futures, places)
        self._finish()

    def fail(self, error: KafkaError, *, has_records: bool) -> list[tuple[Acknowledgement, KafkaError]]:
        """Fails every future that has no result yet, and returns those futures, with their errors, which may have their records."""
        failed = [(index, future) for index, future in enumerate(self.futures) if not future.done()]
        errors = self._errors(error) if has_records and failed else [error] * len(self.futures)
        for index, future in failed:
            future.set_exception(errors[index])
        self._finish()
        return [(future, errors[index]) for index, future in failed]

    def _errors(self, error: KafkaError) -> list[KafkaError]:
        """Returns the error of each record."""
        topic, partition = self.partition.topic, self.partition.partition
        return [
            of_record(error, UndeliveredRecord(topic, partition, record.key, record.value, record.headers, record.timestamp_ms))
            for record in iterate_records(self.builder.build())
        ]

    def expired(self) -> KafkaError:
        """Returns the error that the batch fails with when its ``delivery_timeout_ms`` is over."""
        last = self.problem
        if last is None:
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "delivery_timeout_ms expired before the first response")
        return KafkaError(last.code, f"delivery_timeout_ms expired after {self.attempts} attempts; the last error: {last.message}")

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(())


class PartitionQueue:
    """The batches of one partition that are not in flight, in order; the last one may still be open."""

    __slots__ = (
        "_begun",
        "_carrier",
        "_flying",
        "_known_id",
        "_next_sequence",
        "_numbered_for",
        "_void_id",
        "batches",
        "partition",
        "piece_bytes",
        "resumes_at_zero_in_flight",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self._flying: dict[ProducerBatch, None] = {}
        self._carrier: object = None  # the connection that all batches in flight went over
        self._begun = 0
        self._next_sequence = 0
        self._numbered_for = -1  # the producer id whose sequence it is
        self._known_id = -1  # the producer id under which the broker last acknowledged a batch
        self._void_id = -1  # the producer id whose sequence the broker last refused: no batch is sent under its numbers again
        self.resumes_at_zero_in_flight = False  # a batch failed: later ones in flight come back first, then all go in order
        self.piece_bytes: int | None = None  # how large the pieces were of a batch that was too large for the topic

    @property
    def in_flight(self) -> int:
        """How many batches are."""
        return len(self._flying)

    @property
    def may_send(self) -> bool:
        return not (self.resumes_at_zero_in_flight and self.in_flight)

    def has_room(self, size_bytes: int, *, batch_bytes_max: int) -> bool:
        """True when a record of this size fits into the batch that is open."""
        if not self.batches or self.batches[-1].is_closed:
            return False
        return self.batches[-1].builder.size_bytes + RECORD_OVERHEAD_BYTES + size_bytes <= batch_bytes_max

    def wait_ms(self, now_ms: int, *, linger_ms: int) -> int:
        """Returns how long the head batch waits before it may be sent."""
        batch = self.batches[0]
        if batch.not_before_ms > now_ms:
            return batch.not_before_ms - now_ms
        return 0 if batch.is_closed else max(0, batch.created_ms + linger_ms - now_ms)

    def add(
        self, record: Outgoing, future: Acknowledgement, *, batch_bytes_max: int, now_ms: int, delivery_timeout_ms: int
    ) -> tuple[ProducerBatch | None, int]:
        """Appends the record. Returns the batch where the sender should see it, because it is new or full, and the bytes added."""
        is_new = not self.has_room(record.size_bytes, batch_bytes_max=batch_bytes_max)
        batch = self._begin(now_ms, delivery_timeout_ms) if is_new else self.batches[-1]
        before = batch.builder.size_bytes
        size = batch.builder.append(record.key, record.value, record.headers, timestamp_ms=record.timestamp_ms)
        batch.futures.append(future)
        batch.timestamps.append(record.timestamp_ms)
        batch.is_closed = size >= batch_bytes_max
        return batch if is_new or batch.is_closed else None, size - before

    def extend(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        futures: Iterator[Acknowledgement],
        *,
        start: int,
        end: int,
        size_bytes_max: int,
        timestamp_ms: int,
        batch_bytes_max: int,
        now_ms: int,
        delivery_timeout_ms: int,
    ) -> tuple[ProducerBatch | None, int, int]:
        """Appends rows from ``start`` on, at least one, as many as fit into one batch. Returns also the first row that is not in it.

        The rest is as in ``add``. The rows have no headers and share one timestamp, and each takes the next of the futures. None has more
        than ``size_bytes_max`` bytes, which is at most ``row_bytes_max``.
        """
        is_new = not self.has_room(size_bytes_max, batch_bytes_max=batch_bytes_max)
        batch = self._begin(now_ms, delivery_timeout_ms) if is_new else self.batches[-1]
        builder = batch.builder
        before = builder.size_bytes
        full = batch_bytes_max - RECORD_OVERHEAD_BYTES - size_bytes_max + 1  # the row that brings it there has room yet
        reached = builder.extend(keys, values, start=start, end=end, timestamp_ms=timestamp_ms, size_max=full)
        assert builder.size_bytes <= batch_bytes_max, "a record's overhead has its bound"
        batch.futures.extend(islice(futures, reached - start))
        batch.timestamps.extend(repeat(timestamp_ms, reached - start))
        batch.is_closed = reached < end
        return batch if is_new or batch.is_closed else None, builder.size_bytes - before, reached

    def _begin(self, now_ms: int, delivery_timeout_ms: int) -> ProducerBatch:
        """Opens a batch, and closes the one before it."""
        if self.batches:
            self.batches[-1].is_closed = True
        batch = ProducerBatch(self.partition, self._begun, created_ms=now_ms, deadline_ms=now_ms + delivery_timeout_ms)
        self._begun += 1
        self.batches.append(batch)
        return batch

    def add_to_open(self, record: Outgoing, future: Acknowledgement, *, batch_bytes_max: int) -> int:
        """Appends the record to the open batch. Returns the bytes added: 0 where no batch is open, or where this record might fill it.

        After 0 the caller calls ``add``. For records without headers only, whose size in the batch has a bound.
        """
        if not self.batches:
            return 0
        batch = self.batches[-1]
        builder = batch.builder
        before = builder.size_bytes
        if batch.is_closed or before + RECORD_OVERHEAD_BYTES + record.size_bytes >= batch_bytes_max:
            return 0
        size = builder.append(record.key, record.value, timestamp_ms=record.timestamp_ms)
        assert size < batch_bytes_max, "a record's overhead has its bound"
        batch.futures.append(future)
        batch.timestamps.append(record.timestamp_ms)
        return size - before

    def may_go(self, connection: object, producer_id: int | None) -> bool:
        """True when sending the head batch over the connection now keeps the partition's order. Without idempotence there is no id."""
        if producer_id is None:
            return self.may_go_over(connection)
        return self.may_go_over(connection) and self.may_number(producer_id) and self.may_follow(producer_id) and self.is_known_again

    def may_number(self, producer_id: int) -> bool:
        """True when the head batch can be sent: it has its number, or may take the next one of this producer id.

        A new id starts only when nothing numbered under the old one is in flight: its fate would be unknown.
        """
        return self.batches[0].base_sequence >= 0 or self._numbered_for == producer_id or self.in_flight == 0

    def may_go_over(self, connection: object) -> bool:
        """True when a batch sent over this connection cannot overtake those in flight: only one connection keeps them in order.

        A broker that has forgotten the producer takes its next batch at any sequence, so it would not refuse the later one.
        """
        return self.in_flight == 0 or self._carrier is connection

    def may_follow(self, producer_id: int) -> bool:
        """True when a batch may be sent while others are in flight: once the broker has acknowledged one under this id.

        A broker that does not know the producer takes its first batch at any sequence. It would take the second one after it has refused
        the first for a reason that passes.
        """
        return self.in_flight == 0 or self._known_id == producer_id

    @property
    def is_known_again(self) -> bool:
        """Whether the oldest batch in flight would still be known as a duplicate, were the head batch stored before it comes again.

        It may be sent a second time, behind others that were acknowledged meanwhile; a broker knows the last ``WINDOW_BATCHES``.
        """
        return not self._flying or self.batches[0].index - min(batch.index for batch in self._flying) < WINDOW_BATCHES

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Records that the broker has the batch, and knows the producer by it."""
        self._known_id = batch.numbered_for

    def take(self, connection: object, producer_id: int) -> ProducerBatch:
        """Takes the head batch, numbers it, and counts it as in flight over the connection."""
        assert self.may_go_over(connection), "batches of a partition are in flight over one connection"
        batch = self.batches.popleft()
        self.number(batch, producer_id)
        self._carrier = connection
        self._flying[batch] = None
        self.resumes_at_zero_in_flight = False
        return batch

    def start_over(self) -> None:
        """Starts the sequence at zero: the producer has a new epoch. No batch is queued or in flight."""
        assert not self._flying, "a new epoch begins between two transactions"
        assert not self.batches, "a transaction has no batches left when it ends"
        self._numbered_for = self._known_id = self._void_id = -1

    def landed(self, batch: ProducerBatch) -> None:
        """Removes the batch from those in flight."""
        del self._flying[batch]

    def number(self, batch: ProducerBatch, producer_id: int) -> None:
        """Closes the batch and gives it its place in the producer id's sequence, which wraps at 2**31; a numbered one keeps it."""
        batch.is_closed = True
        if batch.base_sequence >= 0:
            return
        if self._numbered_for != producer_id:
            self._numbered_for, self._next_sequence = producer_id, 0
        batch.numbered_for = producer_id
        batch.base_sequence = self._next_sequence
        self._next_sequence = (self._next_sequence + batch.count) % SEQUENCE_COUNT

    def take_back(self, batch: ProducerBatch) -> None:
        """Queues a batch again that was in flight, before all later ones."""
        if batch.numbered_for == self._void_id:
            batch.base_sequence = -1
        place = next((index for index, other in enumerate(self.batches) if other.index > batch.index), len(self.batches))
        self.batches.insert(place, batch)

    def take_pieces(self, batch: ProducerBatch, pieces: list[ProducerBatch]) -> None:
        """Queues the pieces in the place of a batch that was in flight. They count as batches: later ones move on by as many."""
        added = len(pieces) - 1
        for other in (*self.batches, *self._flying):
            if other.index > batch.index:
                other.index += added
        self._begun += added
        for piece in pieces:
            self.take_back(piece)

    def renumber(self, producer_id: int) -> None:
        """Gives all queued batches new numbers: the broker refused the head batch as out of sequence, so it stored none after it either.

        The same holds for batches still in flight, once they are taken back: under its old number one would be refused while later ones are
        stored.
        """
        self._void_id = producer_id
        for batch in self.batches:
            batch.base_sequence = -1
