"""SyncGroup, versions 0-5: the leader brings the assignment, the others wait for theirs. v3 static members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.slices import Slices
from ottla.errors import KafkaError
from ottla.groups.commands import SyncGroup
from ottla.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.node import Broker


async def handle(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    slices = Slices(broker.world.clock)
    assignments = tuple([(assigned.member_id, assigned.assignment) async for assigned in slices.over(request.assignments)])

    def command(token: int) -> SyncGroup:
        return SyncGroup(
            token=token,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=assignments,
        )

    try:
        result = await broker.groups.ask(request.group_id, command)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    return SyncGroupResponse(
        error_code=result.error_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
