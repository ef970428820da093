"""ConsumerGroupDescribe, versions 0-1: epochs, members, what they have and what they are to have (KIP-848). v1 says which are classic.

A group with topics that the caller may not describe is not shown. A group that is listed many times is answered once: else a
short request would have an answer of gigabytes. A coordinator that cannot commit describes what it has.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.coordinators.runtime import Patience
from ottla.broker.handlers.consumer_group_heartbeat import OFF
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.consumer.commands import DescribeConsumerGroup, DescribedConsumer
from ottla.groups.consumer.member import Partitions
from ottla.messages import consumer_group_describe as messages
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

CLASSIC: Final = 0
CONSUMER: Final = 1


async def handle(parts: Parts, context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    groups, patience = [], Patience(parts.world.clock)
    async for group_id in Slices(parts.world.clock).over_distinct(request.group_ids):
        group = await _describe(parts, context, group_id, patience)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.allowed(ResourceType.GROUP, group_id)
        groups.append(group)
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(parts: Parts, context: RequestContext, group_id: str, patience: Patience) -> messages.DescribedConsumerGroup:
    refused = messages.DescribedConsumerGroup(group_id=group_id)
    if not parts.groups.serves_consumer_protocol:
        refused.error_code, refused.error_message = ErrorCode.UNSUPPORTED_VERSION, OFF
        return refused
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        refused.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return refused
    try:
        result = await parts.groups.look_up(group_id, lambda token: DescribeConsumerGroup(token, group_id), patience)
    except KafkaError as error:
        refused.error_code, refused.error_message = error.code, error.message or None
        return refused
    if result.error_code:
        refused.error_code, refused.error_message = result.error_code, result.error_message
        return refused
    members: list[messages.DescribedConsumer] = []
    topics: set[str] = set()
    async for member in Slices(parts.world.clock).over(result.members):
        shown = _member(parts, member)
        members.append(shown)
        topics |= {
            *member.topics,
            *(found.topic_name for found in (*shown.assignment.topic_partitions, *shown.target_assignment.topic_partitions)),
        }
    if not all(
        [context.may(Operation.DESCRIBE, ResourceType.TOPIC, name) async for name in Slices(parts.world.clock).over(sorted(topics))]
    ):
        refused.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused.error_message = "the group has topics that the client is not authorized to describe"
        return refused
    return messages.DescribedConsumerGroup(
        group_id=group_id,
        group_state=result.state,
        group_epoch=result.epoch,
        assignment_epoch=result.target_epoch,
        assignor_name=result.assignor,
        members=members,
    )


def _member(parts: Parts, member: DescribedConsumer) -> messages.DescribedConsumer:
    return messages.DescribedConsumer(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        member.regex,
        _assignment(parts, member.assigned),
        _assignment(parts, member.target),
        CLASSIC if member.is_classic else CONSUMER,
    )


def _assignment(parts: Parts, partitions: Partitions) -> messages.DescribedAssignment:
    """Returns the assignment without the topics that no longer exist."""
    names = parts.groups.image.topic_names
    return messages.DescribedAssignment(
        [
            messages.DescribedTopicPartitions(topic_id, names[topic_id], sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
            if topic_id in names
        ]
    )


SERVICE = service(ConsumerGroupDescribeRequest, handle, needs=Asks.HANDLER)
