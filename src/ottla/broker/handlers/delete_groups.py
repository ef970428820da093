"""DeleteGroups, versions 0-2: empty groups and their offsets go; one result each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.errors import KafkaError
from ottla.groups.commands import DeleteGroup
from ottla.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.node import Broker


async def handle(broker: Broker, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[await _delete(broker, group_id) for group_id in request.groups_names])


async def _delete(broker: Broker, group_id: str) -> DeletableGroupResult:
    try:
        result = await broker.groups.ask(group_id, lambda token: DeleteGroup(token, group_id))
    except KafkaError as error:
        return DeletableGroupResult(group_id, error.code)
    return DeletableGroupResult(group_id, result.error_code)
