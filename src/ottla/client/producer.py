"""The producer: records in, acknowledgements out.

``send`` puts a record into its partition's open batch and returns a future; the sender (``sender.py``) takes batches that
are full or have lingered. Idempotence is the default: a retry is never stored twice, and order is kept. A record that was not
delivered is always reported: its future has the reason, and where no caller looked at it, ``flush`` and ``close`` raise.

Source: KIP-98 (idempotence), KIP-480 (sticky partitions), KIP-679 (strong defaults).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final, Never, Self

from ottla.client.absent_topics import AbsentTopics
from ottla.client.accumulator import Acknowledgement, PartitionQueue, RecordMetadata, row_bytes_max
from ottla.client.batching import Batching
from ottla.client.call_limit import ended_by
from ottla.client.cluster import Cluster
from ottla.client.enlistment import Enlistment
from ottla.client.failures import of_record
from ottla.client.group_metadata import GroupMetadata, Offsets
from ottla.client.meters import ProducerMetrics
from ottla.client.on_delivery import OnDelivery, check_callback, report
from ottla.client.outgoing import HeadersLike, Outgoing, prepare
from ottla.client.positions import P
from ottla.client.producer_settings import ACKS, ProducerSettings
from ottla.client.sender import Sender
from ottla.client.sent_record import SentRecord
from ottla.client.transaction_errors import ProducerFencedError, TransactionFatalError, of_produce
from ottla.client.transaction_states import Call, State
from ottla.client.transactions import Transactions
from ottla.client.usable import closed, refuse_call
from ottla.client.wrong_calls import cells_of, note_sent
from ottla.errors import ErrorCode, KafkaError, UndeliveredRecord
from ottla.records.compression import CODEC_NAMES
from ottla.types import TopicPartition

PART_COUNT: Final = 2_000
"""So many rows of ``send_many`` are checked before the first of them is sent, where not all are there from the start."""


class Producer:
    """A producer, made on a running loop. It owns the cluster: ``close`` closes its connections."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._settings = settings
        self._absent = AbsentTopics(cluster)
        queues: dict[TopicPartition, PartitionQueue] = {}
        acks = ACKS[settings.acks]
        enlistment = None if settings.transactional_id is None else Enlistment(settings.transactional_id)
        self._sender = Sender(
            cluster,
            queues,
            acks=acks,
            is_idempotent=settings.enable_idempotence and acks == -1,
            codec=CODEC_NAMES[settings.compression_type],
            linger_ms=settings.linger_ms,
            request_bytes_max=settings.max_request_size,
            topic_idle_ms_max=settings.metadata_max_idle_ms,
            transaction=enlistment,
        )
        self._transactions: Transactions | None = None
        if enlistment is not None:
            timeout_ms, max_block_ms = settings.transaction_timeout_ms, settings.max_block_ms
            self._transactions = Transactions(cluster, enlistment, self._sender, timeout_ms=timeout_ms, max_block_ms=max_block_ms)
        self._states = None if enlistment is None else enlistment.states
        batching = Batching(cluster, settings, self._sender, queues)
        self._add, self._add_rows, self._extend = batching.add, batching.add_rows, batching.extend
        self._rows_that_fit = batching.rows_that_fit
        self._buffer_memory = settings.buffer_memory
        self._is_plain = settings.key_serializer is None and settings.value_serializer is None
        self._row_bytes_max = min(row_bytes_max(settings.batch_size), settings.max_request_size)
        if not self._is_plain or settings.partitioner is not None:
            self._row_bytes_max = -1
        self._now_ms = cluster.world.clock.now_ms
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._has_said_why = False  # that the producer has failed: no record counts that is not delivered by then

    async def send(
        self,
        topic: str,
        value: Any = None,
        *positional: Never,
        key: Any = None,
        partition: int | None = None,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
        **others: Never,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffers the record. The future returns the offset and timestamp under which it was stored, or raises the reason why it was not.

        ``key`` and ``value`` are bytes or None, or what the serializers take; ``headers`` is a dict, or pairs where a name occurs more than
        once. Waits only for the topic's metadata and for room in the buffer, at most ``max_block_ms``. Raises TypeError at once for what
        cannot be sent, MESSAGE_TOO_LARGE for a record that no request could hold, UNKNOWN_TOPIC_OR_PARTITION for a partition that does not
        exist.
        """
        if positional or others or asyncio.get_running_loop() is not self._loop:
            refuse_call(positional, others)
        if on_delivery is not None:
            check_callback(on_delivery)
        record = self._prepare(topic, value, key, partition, headers, timestamp_ms)
        if not self._is_admitted(topic, partition):
            await self._admit(topic, partition)
        future = SentRecord(loop=self._loop)
        if on_delivery is not None:
            future.add_done_callback(lambda done: report(done, on_delivery))
        self._add(record, future)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends the record and returns where it was stored; KafkaError when it was not. The arguments are those for ``send``.

        The record waits for others as any does, for ``linger_ms`` at most.
        """
        return await (await self.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms))

    async def send_many(self, records: Iterable[tuple[Any, ...]]) -> list[asyncio.Future[RecordMetadata]]:
        """Sends each of the records, (topic, value) or (topic, value, key), as ``send`` does; returns their futures in the same order.

        The rows of a list or tuple are all checked and serialized before the first is sent: TypeError, MESSAGE_TOO_LARGE, or what a
        serializer raises, says that none was. Of another iterable this is so for 2,000 rows at a time. Where a topic does not exist, or
        the buffer stays full for ``max_block_ms``, and after the first 2,000 rows of an iterable, a note of the error
        (``error.__notes__``) says how many rows were sent, the first ones; ``flush`` raises for those that are not delivered.
        """
        futures: list[asyncio.Future[RecordMetadata]] = []
        remaining = iter(records)
        part_count = len(records) if isinstance(records, list | tuple) else PART_COUNT
        try:
            while rows := list(islice(remaining, part_count)):
                for record in [self._prepare(topic, value, key, None, (), None) for topic, value, key in map(cells_of, rows)]:
                    if not self._is_admitted(record.topic, None):
                        await self._admit(record.topic, None)
                    future = SentRecord(loop=self._loop)
                    self._add(record, future)
                    futures.append(future)
        except Exception as error:
            note_sent(error, len(futures))
            raise
        return futures

    async def partitions_for(self, topic: str) -> list[int]:
        """Returns the numbers of the topic's partitions. UNKNOWN_TOPIC_OR_PARTITION when there is no such topic within ``max_block_ms``.

        Brokers that create topics by themselves create this one, as for ``send``.
        """
        return await self._absent.partitions_for(topic, ms=self._settings.max_block_ms, setting="max_block_ms", allow_create=True)

    def metrics(self) -> ProducerMetrics:
        """Returns what this producer has sent so far, and what it buffers now."""
        sender = self._sender
        return sender.meters.reading(used_bytes=sender.memory.used_bytes, limit_bytes=self._settings.buffer_memory)

    async def flush(self) -> None:
        """Waits until every record sent before the call is acknowledged or has failed, which takes ``delivery_timeout_ms`` at most.

        DeliveryError when some were not delivered and no caller has looked at their futures' exceptions.
        """
        await self._sender.flush()
        self._raise_unseen()

    async def close(self) -> None:
        """Flushes, aborts an open transaction and closes all connections. A second call does nothing.

        Where brokers do not answer it takes until ``delivery_timeout_ms`` of each record has passed; DeliveryError as of ``flush``.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._transactions is not None:
                await self._transactions.close()
            await self._sender.flush()
        finally:  # also when the caller stops waiting: what is not acknowledged by then fails
            await self._sender.end()
            await self._cluster.close()
        self._raise_unseen()

    # Transactions

    async def init_transactions(self) -> None:
        """Allows this producer to begin transactions, and fences earlier producers of its transactional id.

        Aborts what they left open, and completes what they had committed. KafkaError when that takes longer than ``max_block_ms``; call it
        again then.
        """
        await self._transactional().init()

    async def begin_transaction(self) -> None:
        """Begins a transaction: the records sent from now on become visible together, when it is committed."""
        await self._transactional().begin()

    async def send_offsets_to_transaction(self, offsets: Offsets[P], group_metadata: GroupMetadata) -> None:
        """Makes the group commit the offsets when the transaction commits. ``group_metadata`` is the consumer's.

        An offset is a number, or an ``OffsetAndMetadata``, whose text ``Admin.committed_offsets`` returns.

        TransactionAbortableError when the consumer is no longer a member of the group: other members may have read the same records.
        """
        await self._transactional().send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Commits: every record sent in the transaction is stored and visible.

        TransactionAbortableError when one was not stored: then call ``abort_transaction``, which raises ProducerFencedError where another
        producer has taken over. A commit raises that where no record was refused before. CommitOutcomeUnknownError when the coordinator
        did not answer within ``max_block_ms``: then call it again.
        """
        await self._ended(self._transactional().commit())

    async def abort_transaction(self) -> None:
        """Aborts: no record of the transaction becomes visible. Those not stored yet never will be.

        Their futures raise OPERATION_NOT_ATTEMPTED, or a TransactionAbortableError where the transaction had failed before.
        """
        await self._ended(self._transactional().abort())
        self._sender.failures.forget()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Opens a transaction that is committed at the end of the block, and aborted when the block raises or the commit fails.

        Raises what the block raised, or ProducerFencedError where that was a KafkaError and the producer is fenced. After
        CommitOutcomeUnknownError call ``commit_transaction`` until it answers.
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Aborts the transaction where that is possible; a failure to abort becomes a note on the error, which says more.

        ProducerFencedError, with the error as its cause, where that is a client's and came of the fence.
        """
        states = self._states
        assert states is not None, "a transaction was open"
        if states.state in (State.IN_TRANSACTION, State.ABORTABLE):
            try:
                await self.abort_transaction()
            except KafkaError as problem:
                if not isinstance(problem, ProducerFencedError):
                    error.add_note(f"the transaction was not aborted either: {problem}")
        if states.is_fenced and not isinstance(error, ProducerFencedError):
            if isinstance(error, KafkaError):
                self._has_said_why = True
                raise states.fenced() from error
            error.add_note(f"the transaction was not aborted either: {states.problem}")

    async def _ended(self, end: Awaitable[None]) -> None:
        """Waits for the end of the transaction. A fatal error of it stands for all records that it leaves undelivered."""
        try:
            await end
        except TransactionFatalError:
            self._has_said_why = True
            raise

    def _raise_unseen(self) -> None:
        """Raises DeliveryError with the failures that the application has not seen, in any form."""
        if self._has_said_why:
            self._sender.failures.forget()
        self._sender.failures.raise_unseen()

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "this producer has no transactions: give it transactional_id= where it is made")
        return self._transactions

    # The steps of a send. A caller in another thread takes the first itself, and the others on the loop.

    def _prepare(self, topic: str, value: Any, key: Any, partition: int | None, headers: HeadersLike, timestamp_ms: int | None) -> Outgoing:
        """Returns the record as it is sent. Touches nothing that belongs to the loop."""
        if self._is_plain and type(value) is bytes and not headers and timestamp_ms is None and type(topic) is str and topic:
            # The usual record, which needs only this; other records are handled below.
            size = len(value)
            if type(key) is bytes:
                size += len(key)
            elif key is not None:
                size = self._settings.max_request_size + 1
            if size <= self._settings.max_request_size and (partition is None or type(partition) is int):
                return Outgoing(topic, partition, key, value, (), self._now_ms(), size)
        return prepare(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=self._now_ms() if timestamp_ms is None else timestamp_ms,
            key_serializer=self._settings.key_serializer,
            value_serializer=self._settings.value_serializer,
            size_bytes_max=self._settings.max_request_size,
        )

    def _is_admitted(self, topic: str, partition: int | None) -> bool:
        """True when ``_add`` may be called at once: the topic and the partition are known, and there is room."""
        if self._is_closed:
            raise closed()
        if self._states is not None:
            self._states.check(Call.SEND)
        found = self._cluster.topics.get(topic)
        if found is None or not found.partitions or self._sender.memory.used_bytes >= self._buffer_memory:
            return False
        return partition is None or partition in found.partitions

    def _blocked_until_ms(self) -> int:
        """Returns when a wait that starts now has lasted for ``max_block_ms``, on the monotonic clock."""
        return self._world.clock.monotonic_ms() + self._settings.max_block_ms

    async def _admit(self, topic: str, partition: int | None, deadline_ms: int | None = None) -> None:
        """Waits until ``_add`` may be called. KafkaError when that is impossible, or not before the deadline (that of ``max_block_ms``)."""
        deadline_ms = self._blocked_until_ms() if deadline_ms is None else deadline_ms
        on_wait = partial(self._absent.wait, topic, deadline_ms - self._settings.max_block_ms, deadline_ms)
        while not self._is_admitted(topic, partition):
            left_ms = deadline_ms - self._world.clock.monotonic_ms()
            async with ended_by(left_ms, f"send to topic {topic!r} has not ended in max_block_ms={self._settings.max_block_ms}"):
                found = await self._cluster.topic(topic, deadline_ms=deadline_ms, allow_create=True, on_wait=on_wait)
                if partition is not None and partition not in found.partitions:
                    await self._cluster.refresh([topic])  # it may have been added
            if partition is not None and partition not in found.partitions:
                known = self._cluster.topics.get(topic)
                if known is not None and partition not in known.partitions:
                    text = f"topic {topic!r} has no partition {partition}; it has {len(known.partitions)}"
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            await self._sender.memory.wait(self._buffer_memory, deadline_ms)

    def _refuse(self, record: UndeliveredRecord, future: Acknowledgement, error: KafkaError) -> None:
        """Fails a record whose ``send`` has returned."""
        if self._states is not None and self._states.takes_batches:
            error = of_produce(error)
            self._states.fail(error)
        failures = self._sender.failures
        if failures.takes(len(record.key or b"") + len(record.value or b"")):
            error = of_record(error, record)
        future.set_exception(error)
        failures.add(TopicPartition(record.topic, record.partition), error, future)
