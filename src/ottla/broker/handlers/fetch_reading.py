"""One pass over the partitions of a fetch: what a consumer is given of each, up to the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ottla.broker.handlers.leader_hints import hint_of
from ottla.broker.replicas.access import absent
from ottla.broker.replicas.early_requests import WANTED_MAX
from ottla.broker.requests.context import RequestContext
from ottla.broker.tasks.slices import pause, sliced
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import (
    READ_COMMITTED,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.fetch_sessions import FetchPlan, PartitionKey, TopicKey
from ottla.types import NO_EPOCH

if TYPE_CHECKING:
    from ottla.broker.parts import Parts
    from ottla.broker.replicas.partition import Partition

LEADER_HINTS_SINCE = 16
SLICE_PARTITIONS = 500
SLICE_RESULTS = 2000
_LED_DIFFERENTLY = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_NOT_LED = frozenset(
    {
        *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH),
        *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID),
    }
)


class ParkedFetch(Protocol):
    """A fetch that waits."""

    def on_append(self, size_bytes: int) -> None: ...

    def on_leader_progress(self, partition: Any, size_bytes: int) -> None: ...


class Reading:
    """One pass over the partitions of a request."""

    settles_before_waiting: ClassVar = False
    __slots__ = (
        "_context", "_endpoints", "_parts", "_plan", "_request", "_results", "has_error", "held", "role_changes", "seen", "size_bytes",
    )  # fmt: skip

    def __init__(self, parts: Parts, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self._parts = parts
        self._context = context
        self._request = request
        self._plan = plan

    async def read(self) -> None:
        parts = self._parts
        results: list[tuple[TopicKey, PartitionData]] = []
        self._results = results
        self.seen: dict[Partition, int] = {}  # readable partitions, and how far they were read
        self.held: dict[Partition, int] = {}  # where an open transaction keeps a read_committed reader, and at what offset
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

    async def _read_partition(self, topic: TopicKey, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        store = self._parts.partitions
        partitions = store.by_name.get(topic) if isinstance(topic, str) else store.by_id.get(topic)
        if partitions is None or (partition := partitions.get(wanted.partition)) is None:
            raise self._absent(topic, wanted.partition)
        meters = partition.meters
        meters.fetch_requests += 1
        log, led, known = partition.log, partition.led_epoch, wanted.current_leader_epoch
        if led < 0 or (known != led and known >= 0) or log.health.is_failed:
            self._check(partition, known)
        end = data.high_watermark = partition.high_watermark
        log_end = log.tail.end_offset
        data.last_stable_offset = partition.last_stable_offset
        start = data.log_start_offset = log.log_start_offset
        data.aborted_transactions = None
        if self._request.isolation_level == READ_COMMITTED:
            if data.last_stable_offset < end:
                self.held[partition] = data.last_stable_offset
            end = data.last_stable_offset
            data.aborted_transactions = []
        if wanted.last_fetched_epoch != NO_EPOCH and self._diverges(partition, wanted, data):
            return
        offset = wanted.fetch_offset
        if not start <= offset <= log_end:
            meters.failed_fetch_requests += 1
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
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
            if data.aborted_transactions is not None and len(log.aborted):
                aborted = log.aborted.reaching_into(offset, min(end, part.end_offset))
                data.aborted_transactions = [AbortedTransaction(ended.producer_id, ended.first_offset) for ended in aborted]

    def _check(self, partition: Partition, known_epoch: int) -> None:
        """KafkaError unless the partition may be read here by one who knows that leader epoch."""
        partition.check_leads(known_epoch)

    # -- after the pass

    async def settle(self) -> None:
        """What was looked at is at rest, or is to be looked at again, in a session that is watched. In slices: there may be thousands."""
        for at, (topic, data) in enumerate(self._results):
            if at % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                await pause()
            self._settle((topic, data.partition_index))

    def _settle(self, key: PartitionKey) -> None:
        raise AssertionError("only the partitions of a watched session settle")

    # -- waiting

    def came_early(self) -> list[tuple[TopicKey, int]]:
        """Partitions that could not be read, and that this broker may be about to lead."""
        refused = [(topic, data.partition_index) for topic, data in self._results if data.error_code in _NOT_LED]
        return [key for key in refused[:WANTED_MAX] if self._parts.early_requests.hold_ms(*key)]

    @property
    def may_wait(self) -> bool:
        """Whether there is something that can become more."""
        return len(self.seen) > 0

    def is_enough(self, missing_bytes: int) -> bool:
        """Whether a fetch that waits for so many bytes more is answered.

        What belongs to open transactions cannot be read: it counts when they end. How much those have that were open already is not
        known: a fetch does not wait for more when one of them has ended.
        """
        if self._request.isolation_level != READ_COMMITTED:
            return missing_bytes <= 0
        has_ended = any(partition.last_stable_offset > stable_offset for partition, stable_offset in self.held.items())
        return has_ended or (missing_bytes <= 0 and self.has_news)

    @property
    def has_news(self) -> bool:
        """Whether there is more since the pass, while it was still going on."""
        if self._request.isolation_level == READ_COMMITTED:
            return any(partition.last_stable_offset > seen for partition, seen in self.seen.items())
        return any(partition.high_watermark > seen for partition, seen in self.seen.items())

    def wait(self, parked: ParkedFetch) -> None:
        """The fetch learns what comes."""
        for partition in self.seen:
            partition.waiters[parked] = None

    def leave(self, parked: ParkedFetch) -> None:
        """It waits no more."""
        for partition in self.seen:
            partition.waiters.pop(parked, None)

    def is_held_back(self, partition: Partition) -> bool:
        """Whether nothing of the partition is given for now."""
        return False

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
