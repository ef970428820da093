"""Fetch, versions 4-18.

Answers at once when min_bytes are there, something failed or nothing may be waited for; else the request is parked and
answered by the append that completes it, or at its deadline. Batches are never cut into: the first one is sent completely even
when it is larger than allowed, and an offset inside a batch returns the complete batch. v7 sessions (KIP-227); v12
diverging epochs; v13 topic ids (KIP-516); v16 leader hints (KIP-951). A parked request is answered when a leader changes.

Consumers read up to the high watermark, followers up to the log's end; what a follower asks for says what it has (KIP-101, KIP-903).
An offset between the two is no error for a consumer: a new leader's high watermark may be behind what the last one told.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.handlers.leader_hints import hint_of
from ottla.broker.replicas.access import absent
from ottla.broker.requests.context import RequestContext, fail
from ottla.broker.requests.service import service
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import pause, sliced
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import (
    TOPIC_IDS_SINCE,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.fetch_sessions import FetchPlan, TopicKey
from ottla.types import NO_EPOCH

if TYPE_CHECKING:
    from ottla.broker.parts import Parts
    from ottla.broker.replicas.leading import Leading
    from ottla.broker.replicas.partition import Partition

READ_COMMITTED = 1
REPLICA_STATE_SINCE = 15
LEADER_HINTS_SINCE = 16
WAIT_MS_MAX = 2**31 - 1
SLICE_PARTITIONS = 500
SLICE_RESULTS = 2000
_LED_DIFFERENTLY = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


async def handle(parts: Parts, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    try:
        plan = parts.fetch_sessions.plan(
            request, uses_topic_ids=context.version >= TOPIC_IDS_SINCE, now_ms=parts.world.clock.monotonic_ms()
        )
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    reading = Reading(parts, context, request, plan)
    await reading.read()
    if reading.has_error or not reading.seen or reading.size_bytes >= request.min_bytes or request.max_wait_ms <= 0:
        return await reading.answer()
    ParkedFetch(parts, context, request, reading).park()
    return None


class Reading:
    """One pass over the partitions of a request."""

    __slots__ = (
        "_committed", "_context", "_endpoints", "_follower", "_has_asked", "_parts", "_plan", "_request", "_results", "has_error",
        "role_changes", "seen", "size_bytes",
    )  # fmt: skip

    def __init__(self, parts: Parts, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self._parts = parts
        self._context = context
        self._request = request
        self._plan = plan
        is_consumer = request.replica_state is None and request.replica_id < 0
        self._follower = None if is_consumer else _follower_of(request, context.version)
        if not is_consumer:
            self._has_asked = False
            self._committed: list[Leading] = []  # whose high watermark this fetch has moved

    async def read(self) -> None:
        parts = self._parts
        results: list[tuple[TopicKey, PartitionData]] = []
        self._results = results
        self.seen: dict[Partition, int] = {}  # readable partitions, and what ``progress_of`` was
        self.size_bytes = 0
        self.has_error = False
        self.role_changes = parts.partitions.role_changes  # when this pass began
        self._endpoints: list[NodeEndpoint] | None = None
        budget = min(self._request.max_bytes, parts.fetch_bytes_max)
        if parts.throttling.limits_fetch:
            budget = parts.throttling.fetch_bytes_max(self._context, budget)
        for topic, wanted in self._plan.partitions():
            if len(results) % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                await pause()
            data = PartitionData(wanted.partition, records=b"")
            try:
                await self._read_partition(topic, wanted, data, budget - self.size_bytes)
            except KafkaError as error:
                data.error_code = error.code
                data.high_watermark = data.high_watermark if error.code == ErrorCode.OFFSET_OUT_OF_RANGE else -1
                self.has_error = True
                if error.code in _LED_DIFFERENTLY and self._context.version >= LEADER_HINTS_SINCE:
                    self._hint(topic, data)
            results.append((topic, data))
        if self._follower is not None:
            self._tell_committed()

    async def _read_partition(self, topic: TopicKey, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        store = self._parts.partitions
        partitions = store.by_name.get(topic) if isinstance(topic, str) else store.by_id.get(topic)
        if partitions is None or (partition := partitions.get(wanted.partition)) is None:
            raise self._absent(topic, wanted.partition)
        meters = partition.meters
        meters.fetch_requests += 1
        log, led, known = partition.log, partition.led_epoch, wanted.current_leader_epoch
        if led < 0 or (known != led and known >= 0) or log.health.is_failed:
            partition.check_leads(known)
        data.high_watermark = partition.high_watermark
        end = log_end = log.tail.end_offset
        data.last_stable_offset = partition.last_stable_offset
        start = data.log_start_offset = log.log_start_offset
        data.aborted_transactions = None
        if self._follower is None:
            end = data.high_watermark
            if self._request.isolation_level == READ_COMMITTED:
                end = data.last_stable_offset
                data.aborted_transactions = []
        if wanted.last_fetched_epoch != NO_EPOCH and self._diverges(partition, wanted, data):
            return
        offset = wanted.fetch_offset
        if not start <= offset <= log_end:
            meters.failed_fetch_requests += 1
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self._follower is not None:
            meters = self._parts.partitions.replication.meters  # type: ignore[assignment]  # what it gets is no consumer's
            if self._note_progress(partition, wanted):
                data.high_watermark = partition.high_watermark
            self.seen.setdefault(partition, end + start)
        else:
            self.seen.setdefault(partition, end)
        if offset >= end or (budget <= 0 and self.size_bytes):
            return
        part = await log.read(
            offset, max_bytes=min(wanted.partition_max_bytes, budget), end_offset=end, min_one_message=not self.size_bytes
        )
        if part is not None:
            data.records = part.region
            size = len(part.region)
            self.size_bytes += size
            meters.bytes_out += size

    def _note_progress(self, partition: Partition, wanted: FetchPartition) -> bool:
        """The follower has everything before its fetch offset: that counts when it asks, not when it is answered.

        True when the high watermark has moved. Who waits for that is answered after the last partition, all at once.
        """
        assert self._follower is not None, "a follower asks"
        if self._has_asked:
            return False
        node, epoch = self._follower
        offset, start_offset = wanted.fetch_offset, wanted.log_start_offset
        leading = partition.leading
        if leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} is no replica of {partition.key}")
        has_moved = leading.on_follower_fetch(node, broker_epoch=epoch, offset=offset, start_offset=start_offset)
        if has_moved:
            self._committed.append(leading)
        return has_moved

    def _tell_committed(self) -> None:
        self._has_asked = True
        committed, self._committed = self._committed, []
        for leading in committed:
            leading.committed()

    @property
    def is_follower(self) -> bool:
        return self._follower is not None

    def progress_of(self, partition: Partition) -> int:
        """It grows with what this fetch waits for: the high watermark for a consumer, both ends of the log for a follower."""
        log = partition.log
        return partition.high_watermark if self._follower is None else log.log_end_offset + log.log_start_offset

    def _hint(self, topic: TopicKey, data: PartitionData) -> None:
        name = topic if isinstance(topic, str) else self._parts.image.topic_names.get(topic, "")
        hint = hint_of(self._parts, self._context, name, data.partition_index)
        if hint is not None:
            data.current_leader = LeaderIdAndEpoch(hint.leader, hint.leader_epoch)
            if self._endpoints is None:
                self._endpoints = []
            if hint.endpoint is not None and all(node.node_id != hint.leader for node in self._endpoints):
                self._endpoints.append(NodeEndpoint(*hint.endpoint))

    def _diverges(self, partition: Partition, wanted: FetchPartition, data: PartitionData) -> bool:
        epoch, end = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0:  # newer than all that this log knows: where it diverges is not known, as in Kafka
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch, end)
        self.has_error = True
        return True

    def _absent(self, topic: TopicKey, index: int) -> KafkaError:
        store, image = self._parts.partitions, self._parts.image
        if isinstance(topic, str):
            return absent(store, image, topic, index)
        name = image.topic_names.get(topic)
        return absent(store, image, name or "", index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name else ErrorCode.UNKNOWN_TOPIC_ID)

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
                session_id = plan.session_id if plan.is_incremental else 0
                return FetchResponse(throttle_time_ms=pause_ms, session_id=session_id, node_endpoints=self._endpoints or [])
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        results = self._results
        if len(results) > SLICE_RESULTS:
            async for topic, data in sliced(results, SLICE_RESULTS):
                plan.answer_partition(topic, data, topics)
        else:
            for topic, data in results:
                plan.answer_partition(topic, data, topics)
        response = FetchResponse(pause_ms, session_id=plan.session_id, responses=list(topics.values()))
        if self._endpoints is not None:
            response.node_endpoints = self._endpoints
        return response


def _follower_of(request: FetchRequest, version: int) -> tuple[int, int] | None:
    """The broker that follows, and its epoch, -1 where it does not say; None for a consumer."""
    if version < REPLICA_STATE_SINCE:
        return (request.replica_id, -1) if request.replica_id >= 0 else None
    state = request.replica_state
    return (state.replica_id, state.replica_epoch) if state is not None and state.replica_id >= 0 else None


class ParkedFetch:
    """A fetch that waits for more bytes: on the list of each of its partitions, and in the purgatory by its deadline."""

    __slots__ = ("_context", "_is_due", "_missing_bytes", "_parts", "_reading", "_request", "is_done")

    def __init__(self, parts: Parts, context: RequestContext, request: FetchRequest, reading: Reading) -> None:
        self._parts = parts
        self._context = context
        self._request = request
        self._reading = reading
        self._missing_bytes = request.min_bytes - reading.size_bytes
        self.is_done = self._is_due = False

    def park(self) -> None:
        is_follower = self._reading.is_follower
        for partition in self._reading.seen:
            (partition.follower_waiters if is_follower else partition.waiters)[self] = None
        self._context.connection.parked[self] = None
        self._parts.parking.park(self, min(self._request.max_wait_ms, WAIT_MS_MAX))
        has_grown = any(self._reading.progress_of(partition) > seen for partition, seen in self._reading.seen.items())
        if has_grown or self._parts.partitions.role_changes != self._reading.role_changes:
            self._complete()  # an append came, or a leader, while the last partitions were still being read

    def on_append(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes > 0:
            return
        if self._reading.is_follower:  # it takes what the rest of the burst brings, too
            if not self._is_due:
                self._is_due = True
                asyncio.get_running_loop().call_soon(self._complete)
        else:
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
            partition.follower_waiters.pop(self, None)
        self._parts.parking.unpark()

    def _answer(self, response: FetchResponse | None, error: BaseException | None) -> None:
        if response is None:
            fail(self._context, error or RuntimeError("a fetch has an answer"))
        else:
            self._context.reply(response)


SERVICE = service(FetchRequest, handle)
