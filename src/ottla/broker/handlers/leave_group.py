"""LeaveGroup, versions 0-5: one member, from v3 several, by member id or by instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.errors import KafkaError
from ottla.groups.commands import LeaveGroup, LeavingMember
from ottla.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from ottla.broker.node import Broker


SEVERAL_SINCE = 3


async def handle(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if context.version >= SEVERAL_SINCE:
        leaving = tuple(LeavingMember(member.member_id, member.group_instance_id) for member in request.members)
    else:
        leaving = (LeavingMember(request.member_id, None),)
    try:
        result = await broker.groups.ask(request.group_id, lambda token: LeaveGroup(token, request.group_id, leaving))
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if context.version < SEVERAL_SINCE:
        [(_, _, member_error)] = result.members or (("", None, 0),)
        return LeaveGroupResponse(error_code=result.error_code or member_error)
    return LeaveGroupResponse(error_code=result.error_code, members=[MemberResponse(*member) for member in result.members])
