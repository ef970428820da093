"""The blocking producer.

A record does not hop to the loop by itself. The caller's thread checks and serializes it and puts it into a queue; one call on the loop
takes all that the queue holds by then. ``send`` waits only where the asynchronous one would: for metadata, and for room in the buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, Self, Unpack

from ottla import aio
from ottla.aio import KafkaError, RecordMetadata
from ottla.client.options import ProducerOptions
from ottla.client.outgoing import HeadersLike, Outgoing
from ottla.client.producer import OnDelivery, report
from ottla.sync.loop_thread import Blocking, blocking, on_loop
from ottla.sync.sent_record import SentRecord

_new_future = object.__new__  # without the call of an __init__ that does nothing
WAITING_BYTES_MAX: Final = 1 << 20
WAITING_COUNT_MAX: Final = 10_000
CHUNK_COUNT: Final = 2_000


class Producer(Blocking[aio.Producer]):
    """A producer; see ``ottla.client.options.ProducerOptions`` for the settings."""

    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[ProducerOptions]) -> None:
        super().__init__(lambda: aio.Producer(bootstrap_servers, **settings))
        self._waiting: deque[tuple[Outgoing, SentRecord]] = deque()
        self._put_bytes = 0  # into _waiting, by the caller's thread
        self._moved_bytes = 0  # out of it, by the loop's
        self._is_moving = False  # a call that will empty _waiting is on its way
        self._is_held_up: asyncio.Task[None] | None = None  # it waits for metadata or room, and has the rest to itself

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Sends a record; the future returns where it landed, or raises why it did not.

        ``key`` and ``value`` are bytes or None, or what the serializers take; ``headers`` a dict, or pairs where a name comes more than
        once. Waits only for the topic's metadata and for room in the buffer, at most ``max_block_ms``. TypeError at once for what cannot
        be sent, MESSAGE_TOO_LARGE for a record that no request could hold, UNKNOWN_TOPIC_OR_PARTITION for a partition that is not there.
        """
        future = self._put(self._inner._prepare(topic, value, key, partition, headers, timestamp_ms))
        if on_delivery is not None:
            future.add_done_callback(lambda done: report(done, on_delivery))
        if not self._is_moving:
            self._is_moving = True
            self._thread.loop.call_soon_threadsafe(self._move)
        return future

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Returns where the record landed, once it is acknowledged; KafkaError when it was not. Arguments as of ``send``."""
        return self.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms).result()

    def send_many(self, records: Iterable[tuple[Any, ...]]) -> list[Future[RecordMetadata]]:
        """Sends each record, (topic, value) or (topic, value, key), as ``send`` does; returns their futures in the same order."""
        remaining = iter(records)  # it may run the caller's own code, which does not belong on the loop
        futures: list[Future[RecordMetadata]] = []
        while some := list(islice(remaining, CHUNK_COUNT)):
            self._run(self._add_all(some, futures))
        return futures

    def flush(self) -> None:
        """Waits until every record sent before the call is acknowledged or has failed.

        DeliveryError when some were not delivered and no caller has looked at their futures' exceptions.
        """

        async def flush() -> None:
            await self._moved()
            await self._inner.flush()

        self._run(flush())

    def commit_transaction(self) -> None:
        """Commits every record that was sent in the transaction; ProducerFencedError when another producer took over.

        TransactionAbortableError when one was not stored: then call ``abort_transaction``. CommitOutcomeUnknownError when the coordinator
        did not answer within max.block.ms: then call it again.
        """
        self._run(self._after_moved(self._inner.commit_transaction))

    def abort_transaction(self) -> None:
        """Aborts the transaction; records that were not stored yet never are, and their futures raise."""
        self._run(self._after_moved(self._inner.abort_transaction))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Runs a transaction: committed at the end of the block, aborted when the block raises or the commit cannot be made.

        What the block raises is raised on. After CommitOutcomeUnknownError call ``commit_transaction`` until it answers.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            self._run(self._after_moved(functools.partial(self._inner._abort_after, error)))
            raise

    metrics = on_loop(aio.Producer.metrics)
    partitions_for = blocking(aio.Producer.partitions_for)
    init_transactions = blocking(aio.Producer.init_transactions)
    begin_transaction = blocking(aio.Producer.begin_transaction)
    send_offsets_to_transaction = blocking(aio.Producer.send_offsets_to_transaction)

    def close(self) -> None:
        """Flushes, aborts an open transaction, and ends the loop. A second call does nothing."""
        if not self._is_closed:
            self._run(self._moved())
        super().close()

    def _put(self, record: Outgoing) -> SentRecord:
        is_full = self._put_bytes - self._moved_bytes > WAITING_BYTES_MAX or len(self._waiting) > WAITING_COUNT_MAX
        if is_full or not self._inner._is_admitted(record):
            self._run(self._admit(record))
        future = _new_future(SentRecord)
        self._put_bytes += record.size_bytes
        self._waiting.append((record, future))
        return future

    # On the loop

    async def _add_all(self, records: list[tuple[Any, ...]], futures: list[Future[RecordMetadata]]) -> None:
        await self._moved()
        inner = self._inner
        for topic, value, *key in records:
            record = inner._prepare(topic, value, key[0] if key else None, None, (), None)
            if not inner._is_admitted(record):
                await inner._admit(record)
            future = SentRecord()
            inner._add(record, future)
            futures.append(future)

    async def _admit(self, record: Outgoing) -> None:
        """Waits until the records before have been moved, and this one may follow."""
        await self._moved()
        await self._inner._admit(record)

    async def _after_moved(self, end: Callable[[], Awaitable[None]]) -> None:
        """Ends the transaction, after moving all records that were sent before."""
        await self._moved()
        await end()

    async def _moved(self) -> None:
        self._move()
        while self._is_held_up is not None:
            await asyncio.wait([self._is_held_up])

    def _move(self) -> None:
        """Moves the waiting records to their batches, up to the first that has to wait longer."""
        waiting, inner = self._waiting, self._inner
        if self._is_held_up is not None:
            return
        admitted = ""  # what is known of a topic stays so until this returns
        while True:
            while waiting:
                record, future = waiting[0]
                try:
                    if record.topic != admitted or record.partition is not None or not inner._has_room():
                        if not inner._is_admitted(record):
                            self._is_held_up = asyncio.get_running_loop().create_task(self._wait_and_move())
                            return
                        admitted = record.topic
                    inner._add(record, future)
                except KafkaError as error:
                    inner._refuse(record, future, error)
                    admitted = ""  # a transaction may have failed with it
                waiting.popleft()
                self._moved_bytes += record.size_bytes
            self._is_moving = False
            if not waiting:  # else a record was put in between, and its caller counted on this call
                return
            self._is_moving = True

    async def _wait_and_move(self) -> None:
        record, future = self._waiting[0]
        try:
            await self._inner._admit(record)
        except KafkaError as error:
            self._inner._refuse(record, future, error)
            self._waiting.popleft()
            self._moved_bytes += record.size_bytes
        self._is_held_up = None
        self._move()
