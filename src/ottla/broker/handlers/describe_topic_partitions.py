"""DescribeTopicPartitions, version 0: topics by name, in pages of partitions (KIP-966).

No topics asked for means all. The cursor names where the next page starts; topics come in the order of their names.
"""

from __future__ import annotations

from ottla.broker.handlers.partition_states import code_of_absent, offline_replicas, shown_leader
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.metadata.image import PartitionImage
from ottla.types import INTERNAL_TOPICS


async def handle(parts: Parts, context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    image = parts.image
    cursor = request.cursor
    slices = Slices(parts.world.clock)
    names = [topic.name async for topic in slices.over(request.topics)]
    is_of_all = not names
    names = names or list(image.topics)
    left = max(1, min(request.response_partition_limit, parts.config["max.request.partition.size.limit"]))
    last = None
    async for name in slices.over_sorted(names):
        if name == last:
            continue
        last = name
        if cursor is not None and name < cursor.topic_name:
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if left <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, first)
            break
        if not (context.may_quietly if is_of_all else context.may)(Operation.DESCRIBE, ResourceType.TOPIC, name):
            if not is_of_all:
                response.topics.append(DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        topic = image.topics.get(name)
        if topic is None:
            allowed = context.allowed(ResourceType.TOPIC, name)
            code, is_internal = code_of_absent(name), name in INTERNAL_TOPICS
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(code, name, is_internal=is_internal, topic_authorized_operations=allowed)
            )
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        page = [_describe(parts, context, name, index, topic.partitions[index]) for index in indexes[:left]]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=page,
                topic_authorized_operations=context.allowed(ResourceType.TOPIC, name),
            )
        )
        if len(indexes) > len(page):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, indexes[len(page)])
            break
        left -= len(page)
    return response


def _describe(
    parts: Parts, context: RequestContext, topic: str, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    leader, code = shown_leader(parts, context, partition)
    return DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(parts, context, topic, index, partition),
    )


SERVICE = service(DescribeTopicPartitionsRequest, handle, needs=Asks.HANDLER)
