"""OffsetFetch, versions 1-10: how far groups have read; -1 where nothing was committed.

v2 null topics mean all, and a top-level error; v7 require_stable; v8 many groups; v10 topic ids. Without require_stable a coordinator that
cannot commit answers by what it has, as a tool wants it; who requires that waits, and is refused.

What is listed again is answered once, a group with other topics INVALID_REQUEST: else a short request would have an answer of gigabytes.

A group that is refused as a whole has its code at the top, and Kafka lists no partitions then. Two clients go wrong by that: aiokafka reads
the codes of partitions alone, and takes a group that is being loaded for one without offsets; librdkafka waits for ever for the partitions
of a group that has moved (its issue 5586), or that knows the member in a later epoch. So what was asked for is listed, with a code by which
each of them asks again; other clients look at the top first.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.coordinators.runtime import Patience
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import CommittedOffset, FetchOffsets
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.offset_fetch import (
    TOPIC_IDS_SINCE,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

ERROR_SINCE: Final = 2
STABLE_SINCE: Final = 7
GROUPS_SINCE: Final = 8
MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
ASK_AGAIN: Final = -1000
"""What librdkafka calls OFFSET_STORED: it keeps the offset of a refused partition that was assigned once more meanwhile."""
TOGETHER_MAX: Final = 1000
"""Partitions that one question to a group's coordinator is about."""
WantedTopics = list[tuple[str, list[int]]]


async def handle(parts: Parts, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    slices = Slices(parts.world.clock)
    if context.version >= GROUPS_SINCE:
        return OffsetFetchResponse(groups=await _groups(parts, context, request, slices))
    patience = _patience(parts, request)
    wanted, denied = None, list[OffsetFetchResponseTopic]()  # what is denied is listed after the others, as Kafka does
    try:
        _check_group(context, request.group_id)
        if request.topics is not None:
            wanted = []
            async for topic in slices.over(request.topics):
                if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                    wanted.append((topic.name, topic.partition_indexes))
                else:
                    denied.append(_failed(topic.name, topic.partition_indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        fetched = await _fetch(parts, context, request.group_id, wanted, slices, patience)
    except KafkaError as error:
        code = _code_of_partitions(error.code, context.version)
        listed = (request.topics or []) if code else []
        topics = [_failed(topic.name, topic.partition_indexes, code) async for topic in slices.over(listed)]
        return OffsetFetchResponse(error_code=error.code if context.version >= ERROR_SINCE else 0, topics=topics)
    topics = [
        OffsetFetchResponseTopic(
            topic,
            [
                OffsetFetchResponsePartition(
                    found.partition, _offset(found.error_code, found.offset), found.leader_epoch, found.metadata, found.error_code
                )
                async for found in slices.over(offsets)
            ],
        )
        async for topic, offsets in slices.over(fetched.items())
    ]
    return OffsetFetchResponse(topics=topics + denied)


def _code_of_partitions(code: int, version: int) -> int:
    """Returns the code of each partition of a group that is refused with the code; 0: they are not listed."""
    if version >= STABLE_SINCE:
        return ErrorCode.UNSTABLE_OFFSET_COMMIT if code in MOVED or code == ErrorCode.STALE_MEMBER_EPOCH else ErrorCode.NONE
    return ErrorCode.NOT_COORDINATOR if code in MOVED else code


def _check_group(context: RequestContext, group_id: str) -> None:
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _failed(name: str, indexes: list[int], code: int) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(name, [OffsetFetchResponsePartition(index, _offset(code), -1, "", code) for index in indexes])


def _offset(code: int, committed: int = -1) -> int:
    """Returns the offset of a partition with that code."""
    return ASK_AGAIN if code == ErrorCode.UNSTABLE_OFFSET_COMMIT else committed


def _patience(parts: Parts, request: OffsetFetchRequest) -> Patience | None:
    return None if request.require_stable else Patience(parts.world.clock)


async def _groups(parts: Parts, context: RequestContext, request: OffsetFetchRequest, slices: Slices) -> list[OffsetFetchResponseGroup]:
    asked: dict[str, OffsetFetchRequestGroup] = {}
    answers, patience = [], _patience(parts, request)
    async for group in slices.over(request.groups):
        first = asked.setdefault(group.group_id, group)
        if first is group:
            answers.append(await _group(parts, context, group, slices, patience))
        elif first != group:
            answers.append(OffsetFetchResponseGroup(group.group_id, error_code=ErrorCode.INVALID_REQUEST))
    return answers


async def _group(
    parts: Parts, context: RequestContext, group: OffsetFetchRequestGroup, slices: Slices, patience: Patience | None
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group.group_id)
    by_id = context.version >= TOPIC_IDS_SINCE
    wanted: WantedTopics | None = None
    refused: list[OffsetFetchResponseTopics] = []  # listed after the others, as Kafka does
    try:
        _check_group(context, group.group_id)
        if group.topics is not None:
            wanted = []
            async for topic in slices.over(group.topics):
                name = parts.image.topic_names.get(topic.topic_id) if by_id else topic.name
                if name is None:
                    refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                elif not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                    refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                else:
                    wanted.append((name, topic.partition_indexes))
        member = group.member_id, group.member_epoch
        fetched = await _fetch(parts, context, group.group_id, wanted, slices, patience, member)
    except KafkaError as error:
        code = _code_of_partitions(error.code, context.version)
        listed = (group.topics or []) if code else []
        return OffsetFetchResponseGroup(group.group_id, [_refused(topic, code) async for topic in slices.over(listed)], error.code)
    async for name, offsets in slices.over(fetched.items()):
        image = parts.image.topics.get(name)
        if by_id and image is None:
            continue
        answers = [
            OffsetFetchResponsePartitions(
                found.partition, _offset(found.error_code, found.offset), found.leader_epoch, found.metadata, found.error_code
            )
            async for found in slices.over(offsets)
        ]
        topic_id = image.topic_id if by_id and image else bytes(16)
        answer.topics.append(OffsetFetchResponseTopics(name, topic_id, answers))
    answer.topics += refused
    return answer


def _refused(topic: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    """Returns the topic as it was asked for: an id is not answered with a name."""
    answers = [OffsetFetchResponsePartitions(index, _offset(code), -1, "", code) for index in topic.partition_indexes]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, answers)


async def _fetch(
    parts: Parts,
    context: RequestContext,
    group_id: str,
    wanted: WantedTopics | None,
    slices: Slices,
    patience: Patience | None,
    member: tuple[str | None, int] = (None, -1),
) -> dict[str, list[CommittedOffset]]:
    """Returns offsets by topic, of all topics without those that may not be described; KafkaError with the group's code.

    Without ``patience`` they must be stable.
    """

    async def ask(pairs: tuple[tuple[str, int], ...] | None) -> tuple[CommittedOffset, ...]:
        def command(token: int) -> FetchOffsets:
            return FetchOffsets(token, group_id, pairs, patience is None, *member)

        groups = parts.groups
        result = await (groups.ask(group_id, command) if patience is None else groups.look_up(group_id, command, patience))
        if result.error_code:
            raise KafkaError(result.error_code)
        return result.offsets

    found: dict[str, list[CommittedOffset]] = {}
    if wanted is None:
        async for offset in slices.over(await ask(None)):
            if context.may_quietly(Operation.DESCRIBE, ResourceType.TOPIC, offset.topic):
                found.setdefault(offset.topic, []).append(offset)
        return found
    distinct: dict[tuple[str, int], None] = {}
    async for topic, indexes in slices.over(wanted):
        found[topic] = []
        distinct |= {(topic, index): None async for index in slices.over(indexes)}
    pairs = list(distinct)
    async for start in slices.over(range(0, len(pairs), TOGETHER_MAX) or (0,)):
        for offset in await ask(tuple(pairs[start : start + TOGETHER_MAX])):
            found[offset.topic].append(offset)
    return found


SERVICE = service(OffsetFetchRequest, handle, needs=Asks.HANDLER)
