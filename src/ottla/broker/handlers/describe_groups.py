"""DescribeGroups, versions 0-6: state, protocol and members; a group that is not known is Dead (v6: GROUP_ID_NOT_FOUND)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.operations import GROUP_OPERATIONS, OPERATIONS_NOT_ASKED
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import DescribeGroup
from ottla.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.node import Broker


NOT_FOUND_SINCE = 6
DEAD = "Dead"


async def handle(broker: Broker, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [await _describe(broker, context, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            group.authorized_operations = GROUP_OPERATIONS if not group.error_code else OPERATIONS_NOT_ASKED
    return DescribeGroupsResponse(groups=groups)


async def _describe(broker: Broker, context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        result = await broker.groups.ask(group_id, lambda token: DescribeGroup(token, group_id))
    except KafkaError as error:
        return DescribedGroup(error.code, error.message or None, group_id)
    if result.state == DEAD and context.version >= NOT_FOUND_SINCE:
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", group_id, DEAD)
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
