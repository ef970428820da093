"""DeleteGroups, versions 0-2: empty groups and their offsets go; one result each, also for a group that is listed many times."""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import DeleteGroup
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(parts: Parts, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results: dict[str, DeletableGroupResult] = {}
    async for group_id in Slices(parts.world.clock).over(request.groups_names):
        if group_id not in results:
            results[group_id] = await _delete(parts, context, group_id)
    return DeleteGroupsResponse(results=list(results.values()))


async def _delete(parts: Parts, context: RequestContext, group_id: str) -> DeletableGroupResult:
    if not context.may(Operation.DELETE, ResourceType.GROUP, group_id):
        return DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        result = await parts.groups.ask(group_id, lambda token: DeleteGroup(token, group_id))
    except KafkaError as error:
        return DeletableGroupResult(group_id, error.code)
    return DeletableGroupResult(group_id, result.error_code)


SERVICE = service(DeleteGroupsRequest, handle, needs=Asks.HANDLER)
