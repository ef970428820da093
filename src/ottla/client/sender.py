"""The producer's sending half: batches to their leaders, up to five requests in flight to each broker.

Each batch carries the producer's id, epoch and a sequence number. When one fails in a way that may pass, those of its
partition that are in flight behind it come back too (the broker refuses a gap), and all go again in order once none is in
flight. Batches of a partition are in flight over one connection only: after it broke, the next one waits until all are back.
When the broker's sequence has been left behind (a batch was given up, or a broker lost its end of the log), the head
batch is refused and so was not stored: it and all after it, in flight or not, are numbered from zero under a fresh id. Batches
of other partitions, whose fate may be unknown, keep the id they had. Source: KIP-98, KIP-360, KIP-480.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.client.accumulator import PartitionQueue, ProducerBatch
from ottla.client.cluster import Cluster
from ottla.client.connection import ClientConnection
from ottla.errors import RETRIABLE, ErrorCode, KafkaError
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.messages.registry import APIS, ApiKey
from ottla.records.batch import HEADER_SIZE
from ottla.types import TopicPartition

TOPIC_IDS_SINCE: Final = 13
IN_FLIGHT_MAX: Final = 5
_SEQUENCE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH})


class Sender:
    """Runs until ``close``. ``queues`` is shared with the producer, which adds to it."""

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
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._queues = queues
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._codec = codec
        self._linger_ms = linger_ms
        self._request_bytes_max = request_bytes_max
        self._producer_id = -1
        self._flying: dict[ProducerBatch, None] = {}
        self._requests: dict[int, int] = {}  # in flight, by node
        self._connecting: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._is_urgent = 0  # flushes that wait: nothing lingers
        self._is_closing = False
        self._room: list[asyncio.Future[None]] = []
        self.buffered_bytes = 0
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="ottla-sender")

    def wake(self) -> None:
        """There is a new batch, or a full one."""
        self._wake.set()

    async def wait_for_room(self, limit: int, deadline_ms: int) -> None:
        """Fewer than ``limit`` bytes are buffered. REQUEST_TIMED_OUT at the deadline."""
        while self.buffered_bytes >= limit:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(future)
            try:
                async with asyncio.timeout(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000):
                    await future
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the buffer of {limit} bytes stayed full") from None

    async def flush(self) -> None:
        self._is_urgent += 1
        self._wake.set()
        try:
            batches = [batch for queue in self._queues.values() for batch in queue.batches] + list(self._flying)
            if batches:
                await asyncio.wait([batch.futures[-1] for batch in batches])
        finally:
            self._is_urgent -= 1

    async def close(self) -> None:
        await self.flush()
        self._is_closing = True
        self._wake.set()
        await self._loop_task
        for task in list(self._tasks):
            task.cancel()

    async def _run(self) -> None:
        while not self._is_closing:
            self._wake.clear()
            wait_ms = self._send_ready()
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _send_ready(self) -> int | None:
        """Starts the requests that can go; milliseconds until another batch will be ready, None when only news can help."""
        now_ms = self._clock.monotonic_ms()
        next_ms: int | None = None
        ready: dict[int, list[PartitionQueue]] = {}
        unconnected: dict[int, list[PartitionQueue]] = {}
        orphans: list[PartitionQueue] = []
        for queue in self._queues.values():
            if not queue.batches or not queue.may_send:
                continue
            wait_ms = self._wait_ms(queue, now_ms)
            if wait_ms > 0:
                next_ms = wait_ms if next_ms is None else min(next_ms, wait_ms)
                continue
            leader = self._cluster.leader(queue.partition)
            if leader is None or (self._is_idempotent and self._producer_id < 0):
                orphans.append(queue)
            elif (connection := self._cluster.open_connection(leader)) is None:
                unconnected.setdefault(leader, []).append(queue)
            elif self._requests.get(leader, 0) < IN_FLIGHT_MAX and queue.may_number(self._producer_id) and queue.may_go_over(connection):
                ready.setdefault(leader, []).append(queue)
        for leader, queues in ready.items():
            connection = self._cluster.open_connection(leader)
            assert connection is not None, "it was open a moment ago"
            self._start(self._produce(leader, connection, self._take(queues, connection)))
        for leader, queues in unconnected.items():
            if leader not in self._connecting:
                self._connecting.add(leader)
                self._start(self._connect(leader, queues))
        if orphans and not any(task.get_name() == "ottla-prepare" for task in self._tasks):
            self._start(self._prepare(orphans), name="ottla-prepare")
        return next_ms

    def _wait_ms(self, queue: PartitionQueue, now_ms: int) -> int:
        batch = queue.batches[0]
        if batch.not_before_ms > now_ms:
            return batch.not_before_ms - now_ms
        if batch.is_closed or self._is_urgent:
            return 0
        return max(0, batch.created_ms + self._linger_ms - now_ms)

    def _take(self, queues: list[PartitionQueue], connection: ClientConnection) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """One batch of each partition, as many as a request holds; they are in flight from now on."""
        taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        size = 0
        for queue in queues:
            batch = queue.batches[0]
            if taken and size + batch.builder.size_bytes > self._request_bytes_max:
                break
            size += batch.builder.size_bytes
            queue.take(connection, self._producer_id)
            self._flying[batch] = None
            taken.append((queue, batch))
        return taken

    def _start(self, coroutine: object, name: str | None = None) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name=name)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            raise AssertionError("requests of the sender end with a result for each batch") from task.exception()

    async def _prepare(self, orphans: list[PartitionQueue]) -> None:
        """Finds leaders and a producer id; batches wait a little longer, or fail at their deadline."""
        try:
            await self._cluster.refresh({queue.partition.topic for queue in orphans})
            if self._is_idempotent and self._producer_id < 0:
                await self._take_producer_id()
        except KafkaError as error:
            problem = error
        else:
            problem = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader is known")
            orphans = [queue for queue in orphans if self._cluster.leader(queue.partition) is None]
        self._put_off(orphans, problem)

    async def _connect(self, node_id: int, queues: list[PartitionQueue]) -> None:
        """The broker is connected; else the batches for it wait a little longer, or fail at their deadline."""
        try:
            await self._cluster.connection(node_id)
        except KafkaError as error:
            self._put_off(queues, error)
            for topic in {queue.partition.topic: None for queue in queues}:
                self._start(self._refresh(topic))
        finally:
            self._connecting.discard(node_id)

    def _put_off(self, queues: list[PartitionQueue], problem: KafkaError) -> None:
        now_ms = self._clock.monotonic_ms()
        for queue in queues:
            if not queue.batches:
                continue
            batch = queue.batches[0]
            is_final = problem.code not in RETRIABLE and problem.code != ErrorCode.BROKER_NOT_AVAILABLE
            if is_final or now_ms >= batch.deadline_ms:
                queue.batches.popleft()
                self._give_up(batch, problem)
            else:
                batch.attempts += 1
                batch.not_before_ms = now_ms + int(self._cluster.backoff.delay_ms(batch.attempts - 1, self._cluster.world))

    async def _take_producer_id(self) -> None:
        response = await self._cluster.ask(None, InitProducerIdRequest(None, 2**31 - 1), InitProducerIdResponse)
        if response.error_code:
            raise KafkaError(response.error_code, "no producer id")
        assert response.producer_epoch == 0, "an idempotent producer without a past begins at epoch 0"
        self._producer_id = response.producer_id

    async def _produce(self, node_id: int, connection: ClientConnection, taken: list[tuple[PartitionQueue, ProducerBatch]]) -> None:
        self._requests[node_id] = self._requests.get(node_id, 0) + 1
        try:
            answers = await self._exchange(connection, taken)
        except KafkaError as error:
            for queue, batch in taken:
                self._settle(queue, batch, PartitionProduceResponse(error_code=error.code, error_message=error.message))
        else:
            for queue, batch in taken:
                missing = PartitionProduceResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="not in the response")
                self._settle(queue, batch, answers.get(queue.partition, missing))
        finally:
            self._requests[node_id] -= 1

    async def _exchange(
        self, connection: ClientConnection, taken: list[tuple[PartitionQueue, ProducerBatch]]
    ) -> dict[TopicPartition, PartitionProduceResponse]:
        by_id = connection.version_of(APIS[ApiKey.PRODUCE]) >= TOPIC_IDS_SINCE
        topics: dict[str, TopicProduceData] = {}
        for queue, batch in taken:
            name = queue.partition.topic
            known = self._cluster.topics.get(name)
            data = topics.setdefault(name, TopicProduceData(name, known.topic_id if known else bytes(16)))
            records = batch.builder.build(
                self._codec,
                producer_id=batch.numbered_for if self._is_idempotent else -1,
                producer_epoch=0 if self._is_idempotent else -1,
                base_sequence=batch.base_sequence if self._is_idempotent else -1,
            )
            data.partition_data.append(PartitionProduceData(queue.partition.partition, records))
        request = ProduceRequest(None, self._acks, self._cluster.request_timeout_ms, list(topics.values()))
        if self._acks == 0:
            connection.send_unanswered(request)
            return {queue.partition: PartitionProduceResponse(base_offset=-1) for queue, _ in taken}
        response = await connection.ask(request, ProduceResponse, timeout_ms=self._cluster.request_timeout_ms)
        names = self._cluster.topic_names
        return {
            TopicPartition(names[topic.topic_id] if by_id else topic.name, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }

    def _settle(self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        """The batch is acknowledged, or stands in line again, or is given up."""
        del self._flying[batch]
        queue.in_flight -= 1
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._release(batch)
            batch.done(answer.base_offset, answer.log_append_time_ms)
            return
        error = KafkaError(code, answer.error_message or f"{queue.partition}")
        now_ms = self._clock.monotonic_ms()
        is_out_of_sequence = self._is_idempotent and code in _SEQUENCE_LOST
        may_pass = code in RETRIABLE or code == ErrorCode.BROKER_NOT_AVAILABLE
        if not (is_out_of_sequence or may_pass) or now_ms >= batch.deadline_ms:
            self._give_up(batch, error)
            return
        batch.attempts += 1
        batch.not_before_ms = now_ms + int(self._cluster.backoff.delay_ms(batch.attempts - 1, self._cluster.world))
        follows_a_failure = queue.resumes_at_zero_in_flight
        queue.take_back(batch)
        queue.resumes_at_zero_in_flight = True
        if may_pass:
            self._start(self._refresh(queue.partition.topic))
        elif not follows_a_failure:
            queue.renumber(batch.numbered_for)
            if batch.numbered_for == self._producer_id:
                self._producer_id = -1

    async def _refresh(self, topic: str) -> None:
        try:
            await self._cluster.refresh([topic])
        except KafkaError:
            return  # the next attempt asks again

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        self._release(batch)
        batch.fail(error)

    def _release(self, batch: ProducerBatch) -> None:
        self.buffered_bytes -= batch.builder.size_bytes - HEADER_SIZE
        room, self._room = self._room, []
        for future in room:
            if not future.done():
                future.set_result(None)
