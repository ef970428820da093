"""SyncGroup, versions 0-5: the leader brings the assignment, the others wait for theirs. v3 static members; from v5 a member says what
its group speaks.

While the group is being loaded the answer is REBALANCE_IN_PROGRESS, as that of Kafka's first coordinator: the rebalance is lost with the
old one, and a client that does not expect COORDINATOR_LOAD_IN_PROGRESS here gives up (aiokafka).
"""

from __future__ import annotations

from typing import Final

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Need, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import SyncGroup
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE: Final = 5


async def handle(parts: Parts, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    slices = Slices(parts.world.clock)
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
        result = await parts.groups.ask(request.group_id, command)
    except KafkaError as error:
        is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code)
    return SyncGroupResponse(
        error_code=result.error_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


SERVICE = service(SyncGroupRequest, handle, waits_for_others=True, needs=Need(Operation.READ, ResourceType.GROUP, "group_id"))
