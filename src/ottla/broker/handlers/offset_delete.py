"""OffsetDelete, version 0: takes committed offsets of single partitions away from a group (KIP-496).

Partitions that a member reads keep their offset (GROUP_SUBSCRIBED_TO_TOPIC); one that nothing was committed for is no error.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import DeleteOffsets
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(parts: Parts, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not context.may(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
    topics = parts.image.topics
    slices = Slices(parts.world.clock)
    allowed = {topic.name async for topic in slices.over(request.topics) if context.may(Operation.READ, ResourceType.TOPIC, topic.name)}
    asked = ((topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions)
    found = [
        (name, index) async for name, index in slices.over(asked) if name in allowed and name in topics and index in topics[name].partitions
    ]
    known = tuple(dict.fromkeys(found))
    try:
        result = await parts.groups.ask(request.group_id, lambda token: DeleteOffsets(token, request.group_id, known))
    except KafkaError as error:
        return OffsetDeleteResponse(error.code)
    if result.error_code:
        return OffsetDeleteResponse(result.error_code)
    codes = dict(zip(known, result.error_codes, strict=True))
    answers = []
    async for topic in slices.over(request.topics):
        otherwise = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.name in allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = [
            OffsetDeleteResponsePartition(wanted.partition_index, codes.get((topic.name, wanted.partition_index), otherwise))
            async for wanted in slices.over(topic.partitions)
        ]
        answers.append(OffsetDeleteResponseTopic(topic.name, partitions))
    return OffsetDeleteResponse(topics=answers)


SERVICE = service(OffsetDeleteRequest, handle, needs=Asks.HANDLER)
