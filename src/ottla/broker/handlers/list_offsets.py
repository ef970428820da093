"""ListOffsets, versions 1-11: the offset of a time, or one of the special ones.

-1 the end (the last stable offset for read_committed), -2 the start, -3 the record with the largest timestamp (v7), -4 the
earliest local offset (v8; all data is local, so the start), -5 the last tiered offset (v9; none, so -1), -6 the earliest
offset pending upload (v11; none, so -1). The leader answers; any replica does where replica_id is -2.
"""

from __future__ import annotations

from itertools import islice

from ottla.broker.handlers.repeated_names import count_names
from ottla.broker.parts import Parts
from ottla.broker.replicas.access import hosted
from ottla.broker.replicas.early_requests import WANTED_MAX
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.fetch import READ_COMMITTED
from ottla.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

CONSUMER = -1
DEBUGGING_REPLICA = -2  # a tool that asks whichever replica, not the leader alone
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_AT_THE_START = (EARLIEST, EARLIEST_LOCAL)


async def handle(parts: Parts, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    slices = Slices(parts.world.clock)
    asked = ((topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions)
    counts = await count_names(slices, asked)
    allowed = {topic.name async for topic in slices.over(request.topics) if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)}
    if request.replica_id == CONSUMER:
        await parts.early_requests.wait([wanted for wanted in islice(counts, WANTED_MAX) if wanted[0] in allowed])
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            await slices.next()
            if topic.name not in allowed:
                results.append(ListOffsetsPartitionResponse(wanted.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            if counts[topic.name, wanted.partition_index] > 1:
                results.append(ListOffsetsPartitionResponse(wanted.partition_index, ErrorCode.INVALID_REQUEST))
                continue
            results.append(await _answer(parts, topic.name, wanted, context.version, request))
        topics.append(ListOffsetsTopicResponse(topic.name, results))
    return ListOffsetsResponse(topics=topics)


async def _answer(
    parts: Parts, topic: str, wanted: ListOffsetsPartition, version: int, request: ListOffsetsRequest
) -> ListOffsetsPartitionResponse:
    result = ListOffsetsPartitionResponse(wanted.partition_index)
    try:
        partition = hosted(parts.partitions, parts.image, topic, wanted.partition_index)
        if version < _SINCE.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        check = partition.check_epoch if request.replica_id == DEBUGGING_REPLICA else partition.check_leads
        check(wanted.current_leader_epoch)
        if request.replica_id >= 0 and wanted.timestamp == LATEST:  # a follower asks where the log ends
            result.offset, result.leader_epoch = partition.log.log_end_offset, partition.leader_epoch
            return result
        result.timestamp, result.offset, result.leader_epoch = await _look_up(partition, wanted.timestamp, request.isolation_level)
    except KafkaError as error:
        result.error_code = error.code
    return result


async def _look_up(partition: Partition, timestamp: int, isolation_level: int) -> tuple[int, int, int]:
    """Returns timestamp, offset and leader epoch."""
    log = partition.log
    if partition.leading is not None and not partition.leading.machine.knows_what_is_committed and timestamp not in _AT_THE_START:
        text = "the leader was elected, and does not yet know again what is committed"
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
    if timestamp == LATEST:
        return -1, _end_of(partition, isolation_level), partition.leader_epoch
    if timestamp in _AT_THE_START:
        start = log.log_start_offset
        epoch = log.epochs.epoch_at(start)
        return -1, start, partition.leader_epoch if epoch < 0 else epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    found = await log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else await log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= _end_of(partition, isolation_level):
        return -1, -1, -1
    return found.timestamp_ms, found.offset, found.leader_epoch


def _end_of(partition: Partition, isolation_level: int) -> int:
    """Returns where the partition ends for such a consumer."""
    return partition.last_stable_offset if isolation_level == READ_COMMITTED else partition.high_watermark


SERVICE = service(ListOffsetsRequest, handle, needs=Asks.HANDLER)
