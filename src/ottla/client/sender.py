"""The producer's sending half: batches to their leaders, up to five requests in flight to each broker.

Each batch carries the producer's id, epoch and a sequence number. When one fails in a way that may pass, its partition's later batches in
flight come back too (the broker refuses a gap), and all go again in order once none is in flight. Batches of a partition are in flight
over one connection only: after it broke, the next one waits until all are back. When the broker's sequence no longer matches (a batch was
given up, or a broker lost its end of the log), the head batch is refused and so was not stored: it and all after it, in flight or not,
are numbered from zero under a fresh id. Batches of other partitions, whose fate may be unknown, keep the id they had. A batch that is too
large for its topic goes on in smaller ones, under its numbers; a single record that is too large fails alone. Whatever is raised on the
way fails the batches that it concerns; no batch outlives delivery.timeout.ms. Source: KIP-91, KIP-98, KIP-126, KIP-360, KIP-480.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from ottla.client.absent_topics import without_leader
from ottla.client.accumulator import PartitionQueue, ProducerBatch
from ottla.client.background import background
from ottla.client.buffer_memory import BufferMemory
from ottla.client.cluster import Cluster
from ottla.client.connection import ClientConnection
from ottla.client.enlistment import Enlistment
from ottla.client.exchange import exchange
from ottla.client.failures import Failures, as_kafka_error
from ottla.client.meters import ProducerMeters
from ottla.client.pieces import divide
from ottla.client.producer_ids import new_producer_id
from ottla.client.used_topics import UsedTopics
from ottla.client.verdict import Verdict, verdict_of
from ottla.client.watch import warn_of_attempts
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.produce import PartitionProduceResponse
from ottla.records.batch import HEADER_SIZE
from ottla.types import TopicPartition

IN_FLIGHT_MAX: Final = 5
NEVER_MS: Final = 2**63
_ENDED: Final = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "close ended before the record was acknowledged; it may have been stored")


class Sender:
    """Runs until ``end``. ``queues`` is shared with the producer, which adds to it."""

    def __init__(
        self,
        cluster: Cluster,
        queues: dict[TopicPartition, PartitionQueue],
        *,
        acks: int,
        is_idempotent: bool,
        codec: int,
        linger_ms: int,
        request_bytes_max: int,
        topic_idle_ms_max: int,
        transaction: Enlistment | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._queues = queues
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._codec = codec
        self._linger_ms = linger_ms
        self._request_bytes_max = request_bytes_max
        self._transaction = transaction
        self._used = UsedTopics(cluster, idle_ms_max=topic_idle_ms_max)
        self._producer_id = -1
        self._flying: dict[ProducerBatch, None] = {}
        self._requests: dict[int, int] = {}  # in flight, by node
        self._connecting: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._is_urgent = 0  # flushes that wait: nothing lingers
        self._is_closing = False
        self._is_preparing = False
        self._expiry_ms = NEVER_MS  # no batch's deadline is earlier
        self.memory = BufferMemory(self._clock)
        self.failures = Failures()
        self.meters = ProducerMeters()
        self._loop_task = background(self._run(), name="ottla-sender")

    def on_batch(self, batch: ProducerBatch) -> None:
        """Takes notice of a batch that is new or full."""
        self._expiry_ms = min(self._expiry_ms, batch.deadline_ms)
        self._used.use(batch.partition.topic, batch.created_ms)
        self._wake.set()

    async def flush(self) -> None:
        """Waits until every batch that existed at the call is acknowledged or has failed."""
        self._is_urgent += 1
        self._wake.set()
        try:
            batches = [batch for queue in self._queues.values() for batch in queue.batches] + list(self._flying)
            while batches:
                await asyncio.wait([batch.finished for batch in batches])
                batches = [piece for batch in batches for piece in batch.finished.result()]
        finally:
            self._is_urgent -= 1

    # Called between and at the end of transactions

    def wake(self) -> None:
        """Sends the batches that may be sent now."""
        self._wake.set()

    def drop_unsent(self, reason: KafkaError) -> None:
        """Fails all batches that are not in flight."""
        self._fail_all(reason)

    async def landed(self) -> None:
        """Waits until no batch is in flight."""
        while self._flying:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def take_identity(self, producer_id: int) -> None:
        """Numbers batches from zero again, under this id."""
        self._producer_id = producer_id
        for queue in self._queues.values():
            queue.start_over()

    async def end(self) -> None:
        """Ends all tasks of the sender; batches that have not ended fail."""
        self._is_closing = self.failures.is_over = True
        self._wake.set()
        await self._loop_task
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for batch in list(self._flying):
            self._give_up(batch, _ENDED)
        self._fail_all(_ENDED)
        self.failures.warn()

    async def _run(self) -> None:
        while not self._is_closing:
            self._wake.clear()
            try:
                wait_ms = self._send_ready()
            except Exception as error:  # noqa: BLE001 - the sender's edge: what it was about fails, and it continues
                wait_ms = None
                self._fail_all(as_kafka_error(error))
            try:
                async with asyncio.timeout(None if wait_ms is None else max(0, wait_ms) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _send_ready(self) -> int | None:
        """Starts the requests that can go; milliseconds until something is due, None when only news can help."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._expiry_ms:
            self._expire(now_ms)
        if self._transaction is not None and self._transaction.states.drops_batches:
            self._fail_all(self._transaction.why_dropped())
        due_ms: list[int] = []
        ready: dict[int, list[PartitionQueue]] = {}
        unconnected: dict[int, list[PartitionQueue]] = {}
        orphans: list[PartitionQueue] = []
        producer_id = self._producer_id if self._is_idempotent else None
        for queue in self._queues.values():
            if not queue.batches or not queue.may_send:
                continue
            if self._transaction is not None and not self._transaction.may_send(queue.partition):
                continue
            wait_ms = queue.wait_ms(now_ms, linger_ms=0 if self._is_urgent else self._linger_ms)
            if wait_ms > 0:
                due_ms.append(wait_ms)
                continue
            leader = self._cluster.leader(queue.partition)
            if leader is None or producer_id == -1:
                orphans.append(queue)
            elif (connection := self._cluster.open_connection(leader)) is None:
                unconnected.setdefault(leader, []).append(queue)
            elif self._requests.get(leader, 0) < IN_FLIGHT_MAX and queue.may_go(connection, producer_id):
                ready.setdefault(leader, []).append(queue)
        for leader, queues in ready.items():
            connection = self._cluster.open_connection(leader)
            assert connection is not None, "it was open a moment ago"
            self._requests[leader] = self._requests.get(leader, 0) + 1
            self._start(self._produce(leader, connection, self._take(queues, connection)))
        for leader, queues in unconnected.items():
            if leader not in self._connecting:
                self._connecting.add(leader)
                self._start(self._connect(leader, queues))
        if orphans and not self._is_preparing:
            self._is_preparing = True
            self._start(self._prepare(orphans))
        if self._expiry_ms < NEVER_MS:
            due_ms.append(self._expiry_ms - now_ms)
        if self._used:
            due_ms.append(self._renew_metadata(now_ms))
        return min(due_ms, default=None)

    def _take(self, queues: list[PartitionQueue], connection: ClientConnection) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Takes one batch of each partition, as many as a request holds; they count as in flight from now on."""
        taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        size = 0
        for queue in queues:
            batch = queue.batches[0]
            if taken and size + batch.builder.size_bytes > self._request_bytes_max:
                break
            size += batch.builder.size_bytes
            queue.take(connection, self._producer_id)
            batch.sent_epoch = self._cluster.leader_epoch(queue.partition)
            self._flying[batch] = None
            taken.append((queue, batch))
        return taken

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Starts the coroutine. It raises no Exception: each one fails the batches that it concerns."""
        task = background(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()

    # What may have to happen before a batch can go

    async def _prepare(self, orphans: list[PartitionQueue]) -> None:
        """Finds leaders and a producer id; batches wait a little longer, or fail at their deadline."""
        try:
            await self._cluster.refresh({queue.partition.topic for queue in orphans})
            if self._is_idempotent and self._producer_id < 0:
                self._producer_id = await new_producer_id(self._cluster)
        except Exception as error:  # noqa: BLE001 - the task's edge
            problems = [(queue, as_kafka_error(error)) for queue in orphans]
        else:
            problems = [(queue, problem) for queue in orphans if (problem := without_leader(self._cluster, queue.partition)) is not None]
        finally:
            self._is_preparing = False
        for queue, problem in problems:
            self._put_off([queue], problem)

    async def _connect(self, node_id: int, queues: list[PartitionQueue]) -> None:
        """Connects to the broker. On failure the batches for it wait a little longer, or fail at their deadline."""
        try:
            await self._cluster.connection(node_id)
        except Exception as error:  # noqa: BLE001 - the task's edge
            self._put_off(queues, as_kafka_error(error))
            for topic in {queue.partition.topic: None for queue in queues}:
                self._start(self._refresh(topic))
        finally:
            self._connecting.discard(node_id)

    def _renew_metadata(self, now_ms: int) -> int:
        """Starts a refresh of metadata that has reached its age. Returns the milliseconds until the next look."""
        left_ms = self._used.left_ms(now_ms)
        if left_ms <= 0:
            busy = {queue.partition.topic for queue in self._queues.values() if queue.batches or queue.in_flight}
            left_ms = self._used.start_refresh(now_ms, busy)
            self._start(self._refresh())
        return left_ms

    async def _refresh(self, *topics: str) -> None:
        try:
            await self._cluster.refresh(topics)
        except Exception:  # noqa: BLE001 - the task's edge: the next attempt asks again
            return
        for queue in self._queues.values():
            if queue.partition.topic in topics:
                self._hurry(queue)

    def _put_off(self, queues: list[PartitionQueue], problem: KafkaError) -> None:
        """Delays the head batches a little, unless the problem is a permanent one."""
        for queue in queues:
            if not queue.batches:
                continue
            if problem.is_transient:
                self._delay(queue.batches[0], problem)
            else:
                self._give_up(queue.batches.popleft(), problem)

    def _delay(self, batch: ProducerBatch, problem: KafkaError) -> None:
        batch.attempts += 1
        batch.problem = problem
        delay_ms = self._cluster.backoff.delay_ms(batch.attempts - 1, self._cluster.world)
        batch.not_before_ms = self._clock.monotonic_ms() + int(delay_ms)
        warn_of_attempts(batch.partition, batch.attempts, batch.deadline_ms - batch.not_before_ms, problem)

    # Requests, and what becomes of their batches

    async def _produce(self, node_id: int, connection: ClientConnection, taken: list[tuple[PartitionQueue, ProducerBatch]]) -> None:
        answers: dict[TopicPartition, PartitionProduceResponse] = {}
        problem = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's response does not list the partition")
        left = {batch: queue for queue, batch in taken}

        def on_moved(batch: ProducerBatch, error: KafkaError) -> None:
            if self._transaction is not None:
                self._transaction.on_lost()
            self._settle(left.pop(batch), batch, PartitionProduceResponse(error_code=error.code, error_message=error.message))

        began_ms = self.meters.on_sent(self._clock.monotonic_ms())
        try:
            answers = await exchange(
                self._cluster, connection, list(left), on_moved,
                acks=self._acks, codec=self._codec, is_idempotent=self._is_idempotent, transaction=self._transaction,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - the task's edge: the request's batches fail with it
            problem = as_kafka_error(error)
            if self._transaction is not None:
                self._transaction.on_lost()
        finally:
            self._requests[node_id] -= 1
            self.meters.on_answered(self._clock.monotonic_ms() - began_ms)
        unanswered = PartitionProduceResponse(error_code=problem.code, error_message=problem.message)
        for batch, queue in left.items():
            self._settle(queue, batch, answers.get(queue.partition, unanswered))

    def _settle(self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        """Acknowledges the batch, queues it again, or gives it up, as the answer says."""
        del self._flying[batch]
        queue.landed(batch)
        fate = verdict_of(
            answer.error_code,
            count=batch.count,
            is_over=self._clock.monotonic_ms() >= batch.deadline_ms,
            is_idempotent=self._is_idempotent,
            is_transactional=self._transaction is not None,
            follows_a_failure=queue.resumes_at_zero_in_flight,
        )
        if fate is Verdict.STORED:
            self._release(batch)
            self.meters.on_acknowledged(batch.count, batch.builder.size_bytes - HEADER_SIZE)
            queue.acknowledged(batch)
            batch.done(answer.base_offset, answer.log_append_time_ms)
            return
        text = f": {answer.error_message}" if answer.error_message else ""
        problem = KafkaError(answer.error_code, f"{queue.partition}{text}")
        if fate is Verdict.GIVEN_UP:
            self._give_up(batch, problem)
            return
        queue.resumes_at_zero_in_flight = True
        if fate is Verdict.DIVIDED:
            self.meters.divided += 1
            self.memory.give_back(divide(queue, batch, problem))
            return
        self.meters.retried += 1
        self._delay(batch, problem)
        queue.take_back(batch)
        if fate is Verdict.AGAIN:
            self._look_for_leader(queue, answer)
        elif fate is Verdict.RENUMBERED:
            queue.renumber(batch.numbered_for)
            if batch.numbered_for == self._producer_id:
                self._producer_id = -1

    def _look_for_leader(self, queue: PartitionQueue, answer: PartitionProduceResponse) -> None:
        """Sends the batch to a newer leader at once, if the answer (KIP-951) or newer metadata names one."""
        hint, partition = answer.current_leader, queue.partition
        if hint is None or not self._cluster.take_leader(partition, hint.leader_id, hint.leader_epoch):
            self._start(self._refresh(partition.topic))
        self._hurry(queue)

    def _hurry(self, queue: PartitionQueue) -> None:
        """Ends the wait of the head batch if a leader newer than the one it failed with is known."""
        if queue.batches and queue.batches[0].sent_epoch >= 0 and self._cluster.leader(queue.partition) is not None:
            batch = queue.batches[0]
            if self._cluster.leader_epoch(queue.partition) > batch.sent_epoch:
                batch.not_before_ms = 0

    def _expire(self, now_ms: int) -> None:
        """Fails the batches whose delivery.timeout.ms is over, in flight or not; ``_expiry_ms`` becomes the next deadline."""
        deadlines = []
        for queue in self._queues.values():
            while queue.batches and queue.batches[0].deadline_ms <= now_ms:
                batch = queue.batches.popleft()
                self._give_up(batch, batch.expired())
            if queue.batches:
                deadlines.append(queue.batches[0].deadline_ms)
        for batch in self._flying:
            if batch.deadline_ms > now_ms:
                deadlines.append(batch.deadline_ms)
            elif not batch.finished.done():
                self._fail(batch, batch.expired())  # its request is still out, and settles the rest when it ends
        self._expiry_ms = min(deadlines, default=NEVER_MS)

    def _fail_all(self, error: KafkaError) -> None:
        for queue in self._queues.values():
            while queue.batches:
                self._give_up(queue.batches.popleft(), error)

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        self._release(batch)
        self._fail(batch, error)

    def _fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        if self._transaction is not None:
            error = self._transaction.on_failed_batch(error, is_numbered=batch.base_sequence >= 0)
            self._wake.set()
        for future, own in batch.fail(error, has_records=self.failures.takes(batch.builder.size_bytes)):
            self.meters.failed += 1
            self.failures.add(batch.partition, own, future)

    def _release(self, batch: ProducerBatch) -> None:
        self.memory.give_back(batch.builder.size_bytes - HEADER_SIZE)
