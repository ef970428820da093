"""ListGroups, versions 0-5: the groups of this broker. v4 filters by state, v5 by type: classic, or consumer (KIP-848).

COORDINATOR_LOAD_IN_PROGRESS while some of them are not known yet. A coordinator that cannot commit lists what it has.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import KafkaError
from ottla.groups.commands import ListGroups
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(parts: Parts, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    slices = Slices(parts.world.clock)
    states = {state.lower() async for state in slices.over(request.states_filter)}
    types = {group_type.lower() async for group_type in slices.over(request.types_filter)}
    try:
        results = await parts.groups.list_all(ListGroups)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    sees_all = context.may_quietly(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
    groups = [
        ListedGroup(group.group_id, group.protocol_type, group.state, group.group_type)
        for result in results
        for group in result.groups
        if (sees_all or context.may_quietly(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        and (not states or group.state.lower() in states)
        and (not types or group.group_type in types)
    ]
    return ListGroupsResponse(groups=sorted(groups, key=lambda group: group.group_id))


SERVICE = service(ListGroupsRequest, handle, needs=Asks.HANDLER)
