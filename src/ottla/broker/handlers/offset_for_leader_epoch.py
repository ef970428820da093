"""OffsetForLeaderEpoch, versions 2-4: where a leader epoch ends in this log (KIP-101, KIP-320).

An epoch that this log never had gives the largest earlier one and its end; one that is newer than all gives -1, -1.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.replicas.access import led
from ottla.broker.replicas.full_directories import must_leave
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


async def handle(parts: Parts, context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    topics = []
    slices = Slices(parts.world.clock)
    is_node = context.may_quietly(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER)
    context.is_of_node = is_node and request.replica_id >= 0
    async for topic in slices.over(request.topics):
        if not is_node and not context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            refused = [EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted.partition) for wanted in topic.partitions]
            topics.append(OffsetForLeaderTopicResult(topic.topic, refused))
            continue
        results = []
        async for wanted in slices.over(topic.partitions):
            result = EpochEndOffset(partition=wanted.partition)
            try:
                _check_may_be_written(parts, topic.topic, wanted.partition)
                partition = led(parts.partitions, parts.image, topic.topic, wanted.partition, wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        topics.append(OffsetForLeaderTopicResult(topic.topic, results))
    return OffsetForLeaderEpochResponse(topics=topics)


def _check_may_be_written(parts: Parts, topic: str, index: int) -> None:
    """Raises KAFKA_STORAGE_ERROR for a replica that others are to serve: a controller in ZooKeeper mode finds these so."""
    found = parts.image.topics.get(topic)
    if found is not None and index in found.partitions and must_leave(parts.partitions, topic, index, found.partitions[index]):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} cannot be written")


SERVICE = service(OffsetForLeaderEpochRequest, handle, needs=Asks.HANDLER)
