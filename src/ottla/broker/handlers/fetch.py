"""Fetch, versions 4-18.

Answers at once when min_bytes are there, something failed or nothing may be waited for; else the request is parked and
answered by the append that completes it, or at its deadline. Batches are never cut into: the first one is sent completely even
when it is larger than allowed, and an offset inside a batch returns the complete batch. v7 sessions (KIP-227); v12
diverging epochs; v13 topic ids (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.requests.context import RequestContext, fail
from ottla.broker.requests.service import service
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import pause
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import (
    TOPIC_IDS_SINCE,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.replication.fetch_sessions import FetchPlan, TopicKey
from ottla.types import NO_EPOCH

if TYPE_CHECKING:
    from ottla.broker.parts import Parts
    from ottla.broker.replicas.partition import Partition

READ_COMMITTED = 1
WAIT_MS_MAX = 2**31 - 1
SLICE_PARTITIONS = 500
SLICE_RESULTS = 2000


async def handle(parts: Parts, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    try:
        plan = parts.fetch_sessions.plan(
            request, uses_topic_ids=context.version >= TOPIC_IDS_SINCE, now_ms=parts.world.clock.monotonic_ms()
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    reading = Reading(parts, context, request, plan)
    await reading.read()
    if reading.is_enough or request.max_wait_ms <= 0:
        return await reading.answer()
    ParkedFetch(parts, context, request, reading).park()
    return None


class Reading:
    """One pass over the partitions of a request."""

    __slots__ = ("_context", "_parts", "_plan", "_request", "_results", "has_error", "seen", "size_bytes")

    def __init__(self, parts: Parts, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self._parts = parts
        self._context = context
        self._request = request
        self._plan = plan
        self._results: list[tuple[TopicKey, PartitionData]] = []
        self.seen: dict[Partition, int] = {}  # readable partitions, and the high watermark that was read to
        self.size_bytes = 0
        self.has_error = False

    @property
    def is_enough(self) -> bool:
        return self.has_error or not self.seen or self.size_bytes >= self._request.min_bytes

    async def read(self) -> None:
        self._results, self.seen, self.size_bytes, self.has_error = [], {}, 0, False
        budget = min(self._request.max_bytes, self._parts.fetch_bytes_max)
        if self._parts.throttling.limits_fetch:
            budget = self._parts.throttling.fetch_bytes_max(self._context, budget)
        for at, (topic, wanted) in enumerate(self._plan.partitions(), 1):
            if at % SLICE_PARTITIONS == 0:
                await pause()
            data = PartitionData(wanted.partition, records=b"")
            try:
                await self._read_partition(topic, wanted, data, budget - self.size_bytes)
            except KafkaError as error:
                data.error_code = error.code
                data.high_watermark = data.high_watermark if error.code == ErrorCode.OFFSET_OUT_OF_RANGE else -1
                self.has_error = True
            self._results.append((topic, data))

    async def _read_partition(self, topic: TopicKey, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        partition = self._find(topic, wanted.partition)
        meters = partition.meters
        meters.fetch_requests += 1
        partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        end = data.high_watermark = partition.high_watermark
        data.last_stable_offset = partition.last_stable_offset
        data.log_start_offset = log.log_start_offset
        if self._request.isolation_level == READ_COMMITTED:
            end = data.last_stable_offset
            data.aborted_transactions = []
        else:
            data.aborted_transactions = None
        if wanted.last_fetched_epoch != NO_EPOCH and self._diverges(partition, wanted, data):
            return
        if not log.log_start_offset <= wanted.fetch_offset <= end:
            meters.failed_fetch_requests += 1
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.seen.setdefault(partition, end)
        if wanted.fetch_offset == end or (budget <= 0 and self.size_bytes):
            return
        limit = min(wanted.partition_max_bytes, budget)
        part = await log.read(wanted.fetch_offset, max_bytes=limit, end_offset=end, min_one_message=not self.size_bytes)
        if part is not None:
            data.records = part.region
            size = len(part.region)
            self.size_bytes += size
            meters.bytes_out += size

    def _diverges(self, partition: Partition, wanted: FetchPartition, data: PartitionData) -> bool:
        epoch, end = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch, end)
        self.has_error = True
        return True

    def _find(self, topic: TopicKey, index: int) -> Partition:
        if isinstance(topic, str):
            partition = self._parts.partitions.find(topic, index)
            if partition is None:
                raise self._parts.partitions.absent(topic, index)
            return partition
        partitions = self._parts.partitions.by_id.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if partitions is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise self._parts.partitions.absent(self._parts.image.topic_names.get(topic, ""), index, code)
        return partition

    async def read_and_answer(self) -> FetchResponse:
        await self.read()
        return await self.answer()

    async def answer(self) -> FetchResponse:
        """What was read; a client above its quota gets nothing but the time that it has to pause (KIP-219)."""
        plan, throttling = self._plan, self._parts.throttling
        pause_ms = 0
        if throttling.limits_fetch and self.size_bytes:
            pause_ms, is_given = throttling.on_fetch(self._context, self.size_bytes)
            if not is_given:
                return FetchResponse(throttle_time_ms=pause_ms, session_id=plan.session_id if plan.is_incremental else 0)
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        for at, (topic, data) in enumerate(self._results, 1):
            if at % SLICE_RESULTS == 0:
                await pause()
            plan.answer_partition(topic, data, topics)
        return FetchResponse(pause_ms, session_id=plan.session_id, responses=list(topics.values()))


class ParkedFetch:
    """A fetch that waits for more bytes: on the list of each of its partitions, and in the purgatory by its deadline."""

    __slots__ = ("_context", "_missing_bytes", "_parts", "_reading", "_request", "is_done")

    def __init__(self, parts: Parts, context: RequestContext, request: FetchRequest, reading: Reading) -> None:
        self._parts = parts
        self._context = context
        self._request = request
        self._reading = reading
        self._missing_bytes = request.min_bytes - reading.size_bytes
        self.is_done = False

    def park(self) -> None:
        for partition in self._reading.seen:
            partition.waiters[self] = None
        self._context.connection.parked[self] = None
        self._parts.parking.park(self, min(self._request.max_wait_ms, WAIT_MS_MAX))
        if any(partition.high_watermark > seen for partition, seen in self._reading.seen.items()):
            self._complete()  # an append came while the last partitions were still being read

    def on_append(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._complete()

    def expire(self) -> None:
        self._complete()

    def abandon(self) -> None:
        self._leave()

    def _complete(self) -> None:
        if not self.is_done:
            self._leave()
            eager.run(self._reading.read_and_answer(), self._answer)

    def _leave(self) -> None:
        self.is_done = True
        self._context.connection.parked.pop(self, None)
        for partition in self._reading.seen:
            partition.waiters.pop(self, None)
        self._parts.parking.unpark()

    def _answer(self, response: FetchResponse | None, error: BaseException | None) -> None:
        if response is None:
            fail(self._context, error or RuntimeError("a fetch has an answer"))
        else:
            self._context.reply(response)


SERVICE = service(FetchRequest, handle)
