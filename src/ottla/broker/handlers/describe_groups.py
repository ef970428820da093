"""DescribeGroups, versions 0-6: state, protocol and members; a group that is not known is Dead (v6: GROUP_ID_NOT_FOUND).

So is a consumer group (KIP-848): ConsumerGroupDescribe shows those. A coordinator that cannot commit describes what it has.
"""

from __future__ import annotations

from ottla.broker.coordinators.runtime import Patience
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import DescribeGroup
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse

NOT_FOUND_SINCE = 6
DEAD = "Dead"


async def handle(parts: Parts, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describes groups. One that is listed many times is answered once: else a short request would have an answer of gigabytes."""
    groups, patience = [], Patience(parts.world.clock)
    async for group_id in Slices(parts.world.clock).over_distinct(request.groups):
        group = await _describe(parts, context, group_id, patience)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.allowed(ResourceType.GROUP, group_id)
        groups.append(group)
    return DescribeGroupsResponse(groups=groups)


async def _describe(parts: Parts, context: RequestContext, group_id: str, patience: Patience) -> DescribedGroup:
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    try:
        result = await parts.groups.look_up(group_id, lambda token: DescribeGroup(token, group_id), patience)
    except KafkaError as error:
        return DescribedGroup(error.code, error.message or None, group_id)
    if result.state == DEAD and context.version >= NOT_FOUND_SINCE:
        text = f"Group {group_id} is not a classic group." if result.is_other else f"Group {group_id} not found."
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, text, group_id, DEAD)
    return DescribedGroup(
        group_id=group_id,
        group_state=result.state,
        protocol_type=result.protocol_type,
        protocol_data=result.protocol_name,
        members=[
            DescribedGroupMember(
                member.member_id, member.group_instance_id, member.client_id, member.client_host, member.metadata, member.assignment
            )
            for member in result.members
        ],
    )


SERVICE = service(DescribeGroupsRequest, handle, needs=Asks.HANDLER)
