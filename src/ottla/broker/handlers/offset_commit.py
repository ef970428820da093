"""OffsetCommit, versions 2-10: a group stores how far it has read; one result each partition.

The offsets are in the log of ``__consumer_offsets`` before the answer leaves. v10 names topics by id.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import CommitOffsets, OffsetToCommit
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.offset_commit import (
    TOPIC_IDS_SINCE,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

GROUP_ID_NOT_FOUND_SINCE = 9
"""Members that name a group which is not known got ILLEGAL_GENERATION before (KIP-848)."""


async def handle(parts: Parts, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    results: list[OffsetCommitResponsePartition] = []  # of ``offsets``, in the same order
    slices = Slices(parts.world.clock)
    is_allowed = context.may(Operation.READ, ResourceType.GROUP, request.group_id)
    async for topic in slices.over(request.topics):
        name = _name(parts, context, topic) if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
        found = parts.image.topics.get(name) if isinstance(name, str) else None
        known = found.partitions if found is not None else {}
        known_id = found.topic_id if found is not None else bytes(16)
        answers = OffsetCommitResponseTopic(topic.name, topic.topic_id)
        response.topics.append(answers)
        async for partition in slices.over(topic.partitions):
            result = OffsetCommitResponsePartition(partition.partition_index)
            answers.partitions.append(result)
            if isinstance(name, ErrorCode):
                result.error_code = name
            elif partition.partition_index not in known:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets.append(
                    OffsetToCommit(
                        name,
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata or "",
                        known_id,
                    )
                )
                results.append(result)
    if is_allowed:
        await _commit(parts, context, request, offsets, results)
    if context.version < GROUP_ID_NOT_FOUND_SINCE:
        async for result in slices.over(results):
            if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                result.error_code = ErrorCode.ILLEGAL_GENERATION
    return response


def _name(parts: Parts, context: RequestContext, topic: OffsetCommitRequestTopic) -> str | ErrorCode:
    name: str | None = topic.name
    if context.version >= TOPIC_IDS_SINCE:
        name = parts.image.topic_names.get(topic.topic_id)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return name if context.may(Operation.READ, ResourceType.TOPIC, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _commit(
    parts: Parts,
    context: RequestContext,
    request: OffsetCommitRequest,
    offsets: list[OffsetToCommit],
    results: list[OffsetCommitResponsePartition],
) -> None:
    def command(token: int) -> CommitOffsets:
        return CommitOffsets(
            token=token,
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            offsets=tuple(offsets),
            retention_ms=request.retention_time_ms,
            speaks_epochs=context.version >= GROUP_ID_NOT_FOUND_SINCE,
        )

    try:
        if not parts.groups.fits_batch(request.group_id, len(offsets)):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # the coordinator would find out, and for much more work
        outcome = await parts.groups.ask(request.group_id, command)
        codes = outcome.error_codes
    except KafkaError as error:
        codes = (error.code,) * len(results)
    async for result, code in Slices(parts.world.clock).over(zip(results, codes, strict=True)):
        result.error_code = code


SERVICE = service(OffsetCommitRequest, handle, needs=Asks.HANDLER)
