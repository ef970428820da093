"""The blocking producer.

A record does not hop to the loop by itself. The caller's thread checks and serializes it and puts it into a queue; one call on the loop
takes all that the queue holds by then. ``send`` waits only where the asynchronous one would: for metadata, and for room in the buffer.

Usual records (bytes, without key, headers, partition or time of their own) that follow each other within a millisecond are one element of
the queue, a ``Run``, and are encoded together. Callers append to the last element alone; the loop removes an element only when another one
follows it, so that no record is appended to what has left the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, Never, Self, Unpack

from ottla import aio
from ottla.aio import KafkaError, RecordMetadata
from ottla.client.on_delivery import OnDelivery, check_callback, report
from ottla.client.options import ProducerOptions
from ottla.client.other_keywords import refuse_send, with_hints
from ottla.client.other_methods import with_method_hints
from ottla.client.outgoing import HeadersLike, Outgoing
from ottla.client.producer import PART_COUNT
from ottla.client.wrong_calls import cells_of, note_sent, with_brokers_first
from ottla.errors import ErrorCode, UndeliveredRecord
from ottla.sync.loop_thread import Blocking, T, blocking, on_loop
from ottla.sync.sent_record import SentRecord, of_client
from ottla.sync.waiting import WAITING_OVERHEAD_BYTES, Run, Single, waiting_bytes

_new_future = object.__new__  # without the call of an __init__ that does nothing
WAITING_BYTES_MAX: Final = 1 << 20


@with_method_hints
@with_hints
class Producer(Blocking[aio.Producer]):
    """A producer; see ``ottla.client.options.ProducerOptions`` for the settings."""

    @with_brokers_first
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[ProducerOptions]) -> None:
        super().__init__(lambda: aio.Producer(bootstrap_servers, **settings))
        self._waiting: deque[Run | Single] = deque()
        self._open_run: Run | None = None  # the last element of _waiting
        self._row_bytes_max = self._inner._row_bytes_max
        self._now_ms = self._inner._now_ms
        self._sent_record = of_client(self._thread.check)
        self._putting = threading.Lock()  # one caller at a time
        self._put_bytes = 0  # into _waiting, by callers' threads
        self._moved_bytes = 0  # out of it, by the loop's
        self._is_moving = False  # a call that will empty _waiting is on its way
        self._is_held_up: asyncio.Task[None] | None = None  # it waits for metadata or room, and has the rest to itself

    def send(
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
    ) -> Future[RecordMetadata]:
        """Buffers the record. The future returns the offset and timestamp under which it was stored, or raises the reason why it was not.

        ``key`` and ``value`` are bytes or None, or what the serializers take; ``headers`` is a dict, or pairs where a name occurs more than
        once. Waits only for the topic's metadata and for room in the buffer, at most ``max_block_ms``. Raises TypeError at once for what
        cannot be sent, MESSAGE_TOO_LARGE for a record that no request could hold, UNKNOWN_TOPIC_OR_PARTITION for a partition that does not
        exist.

        ``future.result(timeout)`` takes seconds; its TimeoutError leaves the record under way.
        """
        if positional or others:
            refuse_send(positional, others)
        if on_delivery is not None:
            check_callback(on_delivery)
        is_usual = key is None and partition is None and timestamp_ms is None and not headers
        future = self._put_row(topic, value) if is_usual else None
        if future is None:
            future = self._put(self._inner._prepare(topic, value, key, partition, headers, timestamp_ms), may_be_row=is_usual)
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
        """Sends the record and returns where it was stored; KafkaError when it was not. The arguments are those for ``send``.

        The record waits for others as any does, for ``linger_ms`` at most.
        """
        self._thread.check()
        return self.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms).result()

    def send_many(self, records: Iterable[tuple[Any, ...]]) -> list[Future[RecordMetadata]]:
        """Sends each of the records, (topic, value) or (topic, value, key), as ``send`` does; returns their futures in the same order.

        The rows of a list or tuple are all checked and serialized before the first is sent: TypeError, MESSAGE_TOO_LARGE, or what a
        serializer raises, says that none was. Of another iterable this is so for 2,000 rows at a time. Where a topic does not exist, or
        the buffer stays full for ``max_block_ms``, and after the first 2,000 rows of an iterable, a note of the error
        (``error.__notes__``) says how many rows were sent, the first ones; ``flush`` raises for those that are not delivered.
        """
        futures: list[Future[RecordMetadata]] = []
        try:
            for rows in (records,) if isinstance(records, list | tuple) else _parts(records):  # which may run the caller's code
                self._run(self._add_all(rows, futures))
        except Exception as error:
            note_sent(error, len(futures))
            raise
        return futures

    def flush(self) -> None:
        """Waits until every record sent before the call is acknowledged or has failed, which takes ``delivery_timeout_ms`` at most.

        DeliveryError when some were not delivered and no caller has looked at their futures' exceptions.
        """

        async def flush() -> None:
            await self._moved()
            await self._inner.flush()

        self._run(flush())

    def commit_transaction(self) -> None:
        """Commits: every record sent in the transaction is stored and visible.

        TransactionAbortableError when one was not stored: then call ``abort_transaction``, which raises ProducerFencedError where another
        producer has taken over. A commit raises that where no record was refused before. CommitOutcomeUnknownError when the coordinator
        did not answer within ``max_block_ms``: then call it again.
        """
        self._run(self._after_moved(self._inner.commit_transaction))

    def abort_transaction(self) -> None:
        """Aborts: no record of the transaction becomes visible. Those not stored yet never will be, and their futures raise."""
        self._run(self._after_moved(self._inner.abort_transaction))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Opens a transaction that is committed at the end of the block, and aborted when the block raises or the commit fails.

        Raises what the block raised, or ProducerFencedError where that was a KafkaError and the producer is fenced. After
        CommitOutcomeUnknownError call ``commit_transaction`` until it answers.
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
        """Flushes, aborts an open transaction and closes all connections. A second call does nothing.

        Where brokers do not answer it takes until ``delivery_timeout_ms`` of each record has passed; DeliveryError as of ``flush``.
        """
        if not self._is_closed and not self._thread.is_of_parent:
            self._run(self._moved())
        super().close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._open_run = None  # the next record is checked again: the transaction may have ended, or the producer
        return super()._run(coroutine)

    def _put_row(self, topic: str, value: Any) -> SentRecord | None:
        """Puts the record into the open run, and returns its future; None where the run does not take it."""
        with self._putting:
            run = self._open_run
            if run is None or run.topic != topic or type(value) is not bytes or run.timestamp_ms != self._now_ms():
                return None
            size = len(value)
            if size > self._row_bytes_max or self._put_bytes - self._moved_bytes > WAITING_BYTES_MAX:
                return None
            future = _new_future(self._sent_record)
            if size > run.size_bytes_max:
                run.size_bytes_max = size  # before the row is there: the loop may take it at once
            self._put_bytes += size + WAITING_OVERHEAD_BYTES
            run.values.append(value)
            run.futures.append(future)
            return future

    def _put(self, record: Outgoing, *, may_be_row: bool) -> SentRecord:
        is_admitted = self._inner._is_admitted(record.topic, record.partition) and not self._is_full()
        if not is_admitted and not self._thread.is_current():  # a callback does not wait: the record does, in the queue
            self._run(self._admit(record.topic, record.partition))
        future = _new_future(self._sent_record)
        with self._putting:
            self._put_bytes += record.size_bytes + WAITING_OVERHEAD_BYTES
            self._open_run = None
            if may_be_row and record.value is not None and record.size_bytes <= self._row_bytes_max:
                self._open_run = run = Run(record.topic, record.timestamp_ms, record.size_bytes)
                run.append(record.value, future)
                self._waiting.append(run)
            else:
                self._waiting.append(Single(record, future))
        return future

    def _in_child(self) -> None:
        """Makes each ``send`` ask the loop, which refuses; the lock may be held by a thread that is not in this process."""
        self._putting = threading.Lock()
        self._open_run = None
        self._moved_bytes = self._put_bytes - WAITING_BYTES_MAX - 1

    def _unfinished_bytes(self) -> int:
        return self._put_bytes - self._moved_bytes + self._inner._sender.memory.used_bytes

    def _is_full(self) -> bool:
        return self._put_bytes - self._moved_bytes > WAITING_BYTES_MAX

    # On the loop

    async def _add_all(self, rows: Sequence[tuple[Any, ...]], futures: list[Future[RecordMetadata]]) -> None:
        """Checks all rows, then moves them to their batches; ``futures`` gets the futures of what was moved."""
        prepare = self._inner._prepare
        records: list[Outgoing] = []
        for start in range(0, len(rows), PART_COUNT):
            for row in rows[start : start + PART_COUNT]:
                topic, value, key = (*row, None) if type(row) is tuple and len(row) == 2 else cells_of(row)
                records.append(prepare(topic, value, key, None, (), None))
            await asyncio.sleep(0)  # the loop has other work, too
        await self._moved()
        for start in range(0, len(records), PART_COUNT):
            await self._add_part(records[start : start + PART_COUNT], futures)
            await asyncio.sleep(0)

    async def _add_part(self, records: list[Outgoing], futures: list[Future[RecordMetadata]]) -> None:
        inner, kind, row_bytes_max = self._inner, self._sent_record, self._row_bytes_max
        run: Run | None = None
        try:
            for record in records:
                future = _new_future(kind)
                topic, size = record.topic, record.size_bytes
                if record.key is None and record.value is not None and size <= row_bytes_max:
                    if run is None or run.topic != topic or run.timestamp_ms != record.timestamp_ms:
                        await self._add_rest(run)
                        run = Run(topic, record.timestamp_ms, 0)
                    if size > run.size_bytes_max:
                        run.size_bytes_max = size
                    run.append(record.value, future)
                else:
                    await self._add_rest(run)
                    if not inner._is_admitted(topic, None):
                        await inner._admit(topic, None)
                    inner._add(record, future)
                futures.append(future)
            await self._add_rest(run)
        except BaseException:
            if run is not None and run.futures:
                del futures[-len(run.futures) :]
            raise

    async def _add_rest(self, run: Run | None) -> None:
        """Moves all records of the run to their batches."""
        while run is not None and run.futures:
            if not self._inner._is_admitted(run.topic, None):
                await self._inner._admit(run.topic, None)
            self._add_run(run)

    async def _admit(self, topic: str, partition: int | None) -> None:
        """Waits until the records before have been moved, and a record of the partition may follow; ``max_block_ms`` at most for both."""
        deadline_ms = self._inner._blocked_until_ms()
        await self._moved()
        await self._inner._admit(topic, partition, deadline_ms)

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
        if self._is_held_up is not None:
            return
        while True:
            while (first := self._first()) is not None:
                try:
                    is_admitted = self._inner._is_admitted(first.topic, first.partition)
                except KafkaError as error:
                    self._refuse(first, error)
                    continue
                if not is_admitted:
                    self._is_held_up = asyncio.get_running_loop().create_task(self._wait_and_move(first))
                    return
                if isinstance(first, Run):
                    self._moved_bytes += self._add_run(first)
                else:
                    self._add_single(first)
            self._is_moving = False
            if self._first() is None:  # else a record was put in between, and its caller counted on this call
                return
            self._is_moving = True

    def _first(self) -> Run | Single | None:
        """Returns what is to be moved next. An empty run stays while it is the last: callers may append to it."""
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if not isinstance(first, Run) or first.futures:
                return first
            if len(waiting) == 1:
                break
            if not first.futures:  # no caller has appended to it since: another one follows it
                waiting.popleft()
        return None

    def _add_run(self, run: Run) -> int:
        """Moves as many of the run's records as there is room for to their batches. Returns the bytes that they took while they waited."""
        values, futures = run.take(self._inner._rows_that_fit(run.size_bytes_max))
        self._inner._add_rows(run.topic, values, futures, size_bytes_max=run.size_bytes_max, timestamp_ms=run.timestamp_ms)
        return waiting_bytes(values)

    def _add_single(self, first: Single) -> None:
        """Moves the record to its batch, unless the partitioner fails."""
        try:
            self._inner._add(first.record, first.future)
        except KafkaError as error:
            self._refuse(first, error)
        else:
            self._remove(first)

    def _refuse(self, first: Run | Single, error: KafkaError) -> None:
        """Fails the next record."""
        if isinstance(first, Run):
            values, (future,) = first.take(1)
            self._moved_bytes += waiting_bytes(values)
            record = UndeliveredRecord(first.topic, -1, None, values[0], (), first.timestamp_ms)
        else:
            future, found = first.future, first.record
            self._remove(first)
            partition = -1 if found.partition is None else found.partition
            record = UndeliveredRecord(found.topic, partition, found.key, found.value, found.headers, found.timestamp_ms)
        self._inner._refuse(record, future, error)

    def _refuse_those_beside(self, refused: Run | Single, error: KafkaError, count: int) -> None:
        """Fails the next records, so many at most, that have waited for the same as long: room, or the topic."""
        for _ in range(count):
            following = self._first()
            if following is None or (following.topic != refused.topic and error.code != ErrorCode.REQUEST_TIMED_OUT):
                return
            try:
                is_admitted = self._inner._is_admitted(following.topic, following.partition)
            except KafkaError:
                return  # the next move refuses it with that
            if is_admitted:
                return
            self._refuse(following, error)

    def _remove(self, first: Single) -> None:
        self._waiting.popleft()
        self._moved_bytes += first.record.size_bytes + WAITING_OVERHEAD_BYTES

    async def _wait_and_move(self, first: Run | Single) -> None:
        count = sum(len(each.futures) if isinstance(each, Run) else 1 for each in self._waiting)
        try:
            await self._inner._admit(first.topic, first.partition)
        except KafkaError as error:
            self._refuse(first, error)
            self._refuse_those_beside(first, error, count - 1)
        self._is_held_up = None
        self._move()


def _parts(records: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yields the rows of what is read once, so many at a time."""
    remaining = iter(records)
    while some := list(islice(remaining, PART_COUNT)):
        yield some
