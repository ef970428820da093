"""ConsumerGroupHeartbeat, versions 0-1: a member joins, lives, moves to its target, or leaves (KIP-848).

v1 has regular expressions, and member ids that the member makes (KIP-1082); of v0 the coordinator makes one for a member without.
UNSUPPORTED_VERSION while the cluster has group.version 0, or the broker's group.coordinator.rebalance.protocols leaves the protocol out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.broker.handlers.fresh_ids import fresh_id
from ottla.broker.handlers.patterns import matcher
from ottla.broker.handlers.subscribed_regexes import resolve
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Need, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatResult
from ottla.groups.consumer.member import JOINING
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

MEMBERS_NAME_THEMSELVES_SINCE: Final = 1
OFF: Final = "the consumer protocol is off: it needs group.version 1, and consumer in group.coordinator.rebalance.protocols"


async def handle(parts: Parts, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    if not parts.groups.serves_consumer_protocol:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=OFF)
    try:
        await _check_topics(parts, context, request)
        if request.subscribed_topic_regex:
            matcher(request.subscribed_topic_regex)
        result = await _beat(parts, context, _command_of(parts, context, request))
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)
    return _response(result)


async def _check_topics(parts: Parts, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED when the member may not know of a topic that it names."""
    async for name in Slices(parts.world.clock).over(request.subscribed_topic_names or ()):
        if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _command_of(parts: Parts, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    member_id = request.member_id
    if not member_id and request.member_epoch == JOINING and context.version < MEMBERS_NAME_THEMSELVES_SINCE:
        member_id = fresh_id(parts.world.random)
    owned = request.topic_partitions
    return ConsumerHeartbeat(
        token=0,
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        image=parts.groups.image,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else {found.topic_id: frozenset(found.partitions) for found in owned},
        client_id=context.client_id or "",
        client_host=f"/{context.connection.client_host}",
        assignment_interval_ms=parts.config["group.consumer.assignment.interval.ms"],
    )


async def _beat(parts: Parts, context: RequestContext, command: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
    """Takes a heartbeat. When its regular expression had to be resolved, the member has the matches with this heartbeat already."""
    result = await _ask(parts, command)
    if not result.to_resolve:
        return result
    await resolve(parts, context, command.group_id, result.to_resolve, command.image)
    again = await _ask(
        parts,
        msgspec.structs.replace(
            command, member_id=result.member_id, member_epoch=result.member_epoch,
            rack_id=None, rebalance_timeout_ms=-1, topics=None, regex=None, assignor=None, owned=None,
        ),
    )  # fmt: skip
    return again if again.error_code or again.assignment is not None else msgspec.structs.replace(again, assignment=result.assignment)


async def _ask(parts: Parts, command: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
    return await parts.groups.ask(command.group_id, lambda token: msgspec.structs.replace(command, token=token))


def _response(result: ConsumerHeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment([TopicPartitions(topic, sorted(indexes)) for topic, indexes in sorted(result.assignment.items())])
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        member_id=result.member_id or None,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


SERVICE = service(ConsumerGroupHeartbeatRequest, handle, needs=Need(Operation.READ, ResourceType.GROUP, "group_id"))
