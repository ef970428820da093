"""One pass over the partitions of a fetch, of any client: a policy says what is read of each, and what a waiting fetch waits for."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from ottla.broker.fetching.leader_hints import hint_of
from ottla.broker.parts import Parts
from ottla.broker.replicas.access import absent
from ottla.broker.replicas.early_requests import WANTED_MAX
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import RequestContext
from ottla.broker.tasks.slices import pause, sliced
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import (
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


class Policy(Protocol):
    """The rules for one kind of client: the records that it gets, and what it waits for. One fetch has one policy, for all its passes."""

    @property
    def waits_for_leaders(self) -> bool:
        """Whether a partition that this broker may be about to lead is worth some milliseconds."""
        ...

    def may_read(self, context: RequestContext, topic: str) -> bool:
        """True when the client that fetches may be given records of the topic."""
        ...

    @property
    def settles(self) -> bool:
        """Whether the fetch is of a session that is watched: once answered, what was looked at is at rest, or is to be looked at again."""
        ...

    @property
    def settles_before_waiting(self) -> bool:
        """Whether that is so before it waits, too."""
        ...

    def begin(self) -> None:
        """Starts a pass."""
        ...

    async def read(self, fetch: FetchPass, partition: Partition, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        """Puts what the client is given of the partition into ``data``. KafkaError with the code of the partition."""
        ...

    def is_absent(self, key: PartitionKey) -> None:
        """Notes that the broker has no such partition."""
        ...

    def end(self) -> Coroutine[Any, Any, None] | None:
        """Ends the pass, which may have failed. Returns what is left to do for it, if anything."""
        ...

    def answered(self) -> None:
        """Notes that what the last pass has read is in the answer."""
        ...

    def settle(self, key: PartitionKey) -> None:
        """Settles the partition as ``settles`` says."""
        ...

    def may_wait(self, fetch: FetchPass) -> bool:
        """True when there is something that can become more."""
        ...

    def is_enough(self, fetch: FetchPass, missing_bytes: int) -> bool:
        """True when a fetch that waits for so many bytes more is to be answered."""
        ...

    def has_news(self, fetch: FetchPass) -> bool:
        """True when there is more since the pass, while it was still going on."""
        ...

    def wait(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        """Lets the fetch learn what comes."""
        ...

    def leave(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        """Ends the waiting of the fetch."""
        ...

    def is_held_back(self, partition: Partition) -> bool:
        """True when nothing of the partition is given for now."""
        ...


class FetchPass(msgspec.Struct, eq=False):
    """The passes of one request over its partitions; the last one counts."""

    parts: Parts
    context: RequestContext
    request: FetchRequest
    plan: FetchPlan
    policy: Policy
    results: list[tuple[TopicKey, PartitionData]] = []
    seen: dict[Partition, int] = {}
    """The readable partitions, and how far they were read."""
    size_bytes: int = 0
    has_error: bool = False
    role_changes: int = 0  # when the last pass started
    endpoints: list[NodeEndpoint] | None = None

    async def read(self) -> None:
        parts, policy, store = self.parts, self.policy, self.parts.partitions
        results: list[tuple[TopicKey, PartitionData]] = []
        self.results = results
        self.seen = {}
        self.size_bytes = 0
        self.has_error = False
        self.role_changes = store.role_changes
        self.endpoints = None
        budget = min(self.request.max_bytes, parts.fetch_bytes_max)
        if parts.throttling.limits_fetch and not self.context.is_of_node:
            budget = parts.throttling.fetch_bytes_max(self.context, budget)
        asks = parts.authorizer.is_configured
        policy.begin()
        try:
            for topic, wanted in self.plan.partitions():
                if len(results) % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                    await pause()
                data = PartitionData(wanted.partition, records=b"")
                try:
                    if asks and not self._may_read(topic):
                        policy.is_absent((topic, wanted.partition))
                        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    partitions = store.by_name.get(topic) if isinstance(topic, str) else store.by_id.get(topic)
                    if partitions is None or (partition := partitions.get(wanted.partition)) is None:
                        policy.is_absent((topic, wanted.partition))
                        raise self._absent(topic, wanted.partition)
                    partition.meters.fetch_requests += 1
                    await policy.read(self, partition, wanted, data, budget - self.size_bytes)
                except KafkaError as error:
                    data.error_code = error.code
                    data.high_watermark = data.high_watermark if error.code == ErrorCode.OFFSET_OUT_OF_RANGE else -1
                    self.has_error = True
                    if error.code in _LED_DIFFERENTLY and self.context.version >= LEADER_HINTS_SINCE:
                        self._hint(topic, data)
                results.append((topic, data))
        finally:
            if (rest := policy.end()) is not None:
                await rest

    def diverges(self, partition: Partition, wanted: FetchPartition, data: PartitionData) -> bool:
        """True when the client's last record is of an epoch that ends earlier here; then ``data`` says where."""
        epoch, end = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0:  # newer than all that this log knows: where it diverges is not known, as in Kafka
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch, end)
        self.has_error = True
        return True

    def _may_read(self, topic: TopicKey) -> bool:
        """True when the topic may be read. An id that no topic has reveals nothing: it is answered as unknown."""
        name = topic if isinstance(topic, str) else self.parts.image.topic_names.get(topic)
        return name is None or self.policy.may_read(self.context, name)

    def _absent(self, topic: TopicKey, index: int) -> KafkaError:
        store, image = self.parts.partitions, self.parts.image
        if isinstance(topic, str):
            return absent(store, image, topic, index)
        name = image.topic_names.get(topic)
        return absent(store, image, name or "", index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name else ErrorCode.UNKNOWN_TOPIC_ID)

    def _hint(self, topic: TopicKey, data: PartitionData) -> None:
        name = topic if isinstance(topic, str) else self.parts.image.topic_names.get(topic, "")
        hint = hint_of(self.parts, self.context, name, data.partition_index)
        if hint is not None:
            data.current_leader = LeaderIdAndEpoch(hint.leader, hint.leader_epoch)
            if self.endpoints is None:
                self.endpoints = []
            if hint.endpoint is not None and all(node.node_id != hint.leader for node in self.endpoints):
                self.endpoints.append(NodeEndpoint(*hint.endpoint))

    # -- after the pass

    def came_early(self) -> list[tuple[TopicKey, int]]:
        """Returns the partitions that could not be read, and that this broker may be about to lead."""
        refused = [(topic, data.partition_index) for topic, data in self.results if data.error_code in _NOT_LED]
        return [key for key in refused[:WANTED_MAX] if self.parts.early_requests.hold_ms(*key)]

    def _count_errors(self) -> None:
        """Counts the partitions that are refused; the passes before the last one do not count."""
        names, meters = self.parts.image.topic_names, self.parts.partitions.meters
        for topic, data in self.results:
            if data.error_code:
                self.context.meters.count_error(data.error_code)
                of_topic = meters.get(topic if isinstance(topic, str) else names.get(topic, ""))
                if of_topic is not None:
                    of_topic.failed_fetch_requests += 1

    async def settle(self) -> None:
        """Settles what was looked at, in a watched session: at rest, or to be looked at again. In slices: there may be thousands."""
        for at, (topic, data) in enumerate(self.results):
            if at % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                await pause()
            self.policy.settle((topic, data.partition_index))

    async def read_and_answer(self) -> FetchResponse:
        await self.read()
        return await self.answer()

    async def answer(self) -> FetchResponse:
        """Returns what was read; a client above its quota gets nothing but the time that it has to pause (KIP-219)."""
        plan, policy, throttling = self.plan, self.policy, self.parts.throttling
        policy.answered()
        if self.has_error:
            self._count_errors()
        pause_ms, is_given = 0, True
        if throttling.limits_fetch and self.size_bytes and not self.context.is_of_node:
            pause_ms, is_given = throttling.on_fetch(self.context, self.size_bytes)
        if is_given:
            topics: dict[TopicKey, FetchableTopicResponse] = {}
            results = self.results
            if len(results) > SLICE_RESULTS:
                async for topic, data in sliced(results, SLICE_RESULTS):
                    plan.answer_partition(topic, data, topics)
            else:
                for topic, data in results:
                    plan.answer_partition(topic, data, topics)
            response = FetchResponse(pause_ms, session_id=plan.session_id, responses=list(topics.values()))
        else:
            response = FetchResponse(pause_ms, session_id=plan.session_id if plan.is_incremental else 0)
        if self.endpoints is not None:
            response.node_endpoints = self.endpoints
        if policy.settles:
            await self.settle()
        return response
