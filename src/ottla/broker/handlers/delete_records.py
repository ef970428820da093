"""DeleteRecords, versions 0-2: the logs start at the offsets named (-1 means the high watermark).  v2 flexible.

The new start is on the leader's disk before the answer, or that is KAFKA_STORAGE_ERROR; the next round of retention deletes the segments
below it. The answer waits until every replica whose broker lives starts there, or ``timeout_ms`` have passed (REQUEST_TIMED_OUT: the
followers will, later); NOT_LEADER_OR_FOLLOWER when the leader resigns meanwhile. A partition whose topic is only compacted keeps its
records (POLICY_VIOLATION). Each partition is answered for once, however often it is listed: the offset that is listed last counts, as in
Kafka.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.replicas.access import led
from ottla.broker.replicas.deletions import Deletion
from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.waiting import AT_ONCE
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.loggers import get_logger
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import INTERNAL_TOPICS

log = get_logger(__name__)

TO_HIGH_WATERMARK = -1


async def handle(parts: Parts, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
    topics: list[DeleteRecordsTopicResult] = []
    unkept: list[tuple[DeleteRecordsPartitionResult, PartitionLog, int]] = []  # of results without an error: it has yet to be durable
    awaited = AwaitedDeletion(parts, context, request.timeout_ms, DeleteRecordsResponse(topics=topics))
    slices = Slices(parts.world.clock)
    wanted = await _offsets_of(request, slices)
    async for name, offsets in slices.over(wanted.items()):
        results: list[DeleteRecordsPartitionResult] = []
        async for index, offset in slices.over(offsets.items()):
            result = DeleteRecordsPartitionResult(index, -1)
            results.append(result)
            try:
                if not context.may(Operation.DELETE, ResourceType.TOPIC, name):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                opened, start_offset = _advance(parts, name, offset, result, awaited)
                if opened.durability.start_offset < start_offset:  # though an earlier request has moved it
                    unkept.append((result, opened, start_offset))
            except KafkaError as error:
                result.error_code = error.code
        topics.append(DeleteRecordsTopicResult(name, results))
    if unkept:
        await _keep_starts(parts)
    for result, opened, start_offset in unkept:
        if opened.durability.start_offset < start_offset:
            awaited.leave(result)
            result.error_code, result.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, -1
    return awaited.begin()


async def _offsets_of(request: DeleteRecordsRequest, slices: Slices) -> dict[str, dict[int, int]]:
    """Returns where the logs are to start, by topic and partition."""
    wanted: dict[str, dict[int, int]] = {}
    async for topic in slices.over(request.topics):
        offsets = wanted.setdefault(topic.name, {})
        async for partition in slices.over(topic.partitions):
            offsets[partition.partition_index] = partition.offset
    return wanted


class AwaitedDeletion:
    """A request whose followers are to delete the records, too: until they have, or its time has passed."""

    __slots__ = ("_context", "_has_begun", "_parts", "_pending", "_response", "_timeout_ms", "is_done")

    def __init__(self, parts: Parts, context: RequestContext, timeout_ms: int, response: DeleteRecordsResponse) -> None:
        self._parts = parts
        self._context = context
        self._timeout_ms = timeout_ms
        self._response = response
        self._pending: dict[int, tuple[Leading, DeleteRecordsPartitionResult]] = {}  # by identity of the result
        self._has_begun = False
        self.is_done = False

    def wait(self, leading: Leading, offset: int, result: DeleteRecordsPartitionResult) -> None:
        """Waits with the partition's answer until its low watermark has reached the offset."""
        if not self._pending:
            self._context.connection.parked[self] = None
        self._pending[id(result)] = leading, result
        leading.wait_for_deletion(Deletion(offset, self, result))

    def leave(self, result: DeleteRecordsPartitionResult) -> None:
        """Answers for the partition, whatever its followers do."""
        leading, _ = self._pending.pop(id(result), (None, result))
        if leading is not None:
            leading.leave_deletion(result)

    def begin(self) -> DeleteRecordsResponse | None:
        """Returns the answer, or None when it waits for the followers. The leader's part is done."""
        self._has_begun = True
        if not self._pending:
            self._leave()
            return self._response
        self._parts.parking.park(self, max(0, self._timeout_ms))
        return None

    def on_deleted(self, what: DeleteRecordsPartitionResult, low_watermark: int, error: KafkaError | None) -> None:
        if self._pending.pop(id(what), None) is None:
            return
        what.low_watermark = low_watermark
        if error is not None:
            what.error_code = error.code
        if not self._pending and self._has_begun:
            self._parts.parking.unpark()
            self._reply()

    def expire(self) -> None:
        """Answers in time: the logs start there on the leaders; followers that were too slow take it over when they fetch."""
        for leading, result in self._pending.values():
            result.error_code, result.low_watermark = ErrorCode.REQUEST_TIMED_OUT, leading.low_watermark
        self._reply()

    def abandon(self) -> None:
        """Abandons the request, for the client is gone: no answer is sent."""
        if self._has_begun:
            self._parts.parking.unpark()
        self._leave()

    def _reply(self) -> None:
        self._leave()
        self._context.reply(self._response)

    def _leave(self) -> None:
        self.is_done = True
        self._context.connection.parked.pop(self, None)
        pending, self._pending = self._pending, {}
        for leading, result in pending.values():
            leading.leave_deletion(result)


def _advance(
    parts: Parts, topic: str, offset: int, result: DeleteRecordsPartitionResult, awaited: AwaitedDeletion
) -> tuple[PartitionLog, int]:
    """Returns the log, and the offset at which it starts now, or earlier. KafkaError when it may not be changed."""
    if topic in INTERNAL_TOPICS and topic in parts.image.topics:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = led(parts.partitions, parts.image, topic, result.partition_index)
    if partition.log.config.cleanup_policy == "compact":
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    before = partition.log.log_start_offset
    partition.log.advance_log_start_offset(offset)
    has_moved = partition.log.log_start_offset > before
    result.low_watermark = partition.log.log_start_offset
    if partition.leading is not None:
        awaited.wait(partition.leading, offset, result)
    if has_moved:
        partition.start_moved(AT_ONCE)  # whatever else their fetches wait for
    return partition.log, offset


async def _keep_starts(parts: Parts) -> None:
    try:
        await parts.partitions.write_checkpoints()
    except (OSError, StorageError) as error:
        log.error("log_start_not_written", error=str(error))


SERVICE = service(DeleteRecordsRequest, handle, needs=Asks.HANDLER)
