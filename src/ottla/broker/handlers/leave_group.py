"""LeaveGroup, versions 0-5: one member, from v3 several, by member id or by instance id."""

from __future__ import annotations

from typing import Final

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Need, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import LeaveGroup, LeaveResult, LeavingMember
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

SEVERAL_SINCE = 3
TOGETHER_MAX: Final = 1000
"""That leave with one decision of their group."""


async def handle(parts: Parts, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Removes members, one thousand after the other."""
    wanted = request.members if context.version >= SEVERAL_SINCE else [MemberIdentity(request.member_id)]
    members: list[MemberResponse] = []
    async for start in Slices(parts.world.clock).over(range(0, len(wanted), TOGETHER_MAX) or (0,)):
        leaving = tuple(LeavingMember(member.member_id, member.group_instance_id) for member in wanted[start : start + TOGETHER_MAX])
        try:
            result = await _leave(parts, request.group_id, leaving)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=error.code)
        if result.error_code:
            return LeaveGroupResponse(error_code=result.error_code)
        members += [MemberResponse(*member) for member in result.members]
    if context.version < SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=members[0].error_code if members else ErrorCode.NONE)
    return LeaveGroupResponse(members=members)


async def _leave(parts: Parts, group_id: str, leaving: tuple[LeavingMember, ...]) -> LeaveResult:
    return await parts.groups.ask(group_id, lambda token: LeaveGroup(token, group_id, leaving))


SERVICE = service(LeaveGroupRequest, handle, needs=Need(Operation.READ, ResourceType.GROUP, "group_id"))
