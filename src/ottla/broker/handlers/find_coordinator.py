"""FindCoordinator, versions 0-6: who coordinates a group (key type 0), or a transactional id (1).

Up to v3 one key, from v4 many. The internal topic is created when it is first needed. Share groups (2) are refused in words.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization import denial
from ottla.broker.coordinators.runtime import CoordinatorRuntime
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCH_SINCE = 4
KEY_GROUP, KEY_TRANSACTION, KEY_SHARE = 0, 1, 2
_RESOURCES = {KEY_GROUP: ResourceType.GROUP, KEY_TRANSACTION: ResourceType.TRANSACTIONAL_ID, KEY_SHARE: ResourceType.CLUSTER}


async def handle(parts: Parts, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    await parts.home.failing.settled(parts.gate.router)
    slices = Slices(parts.world.clock)
    wanted = request.coordinator_keys if context.version >= BATCH_SINCE else [request.key]
    denied = {key async for key in slices.over_distinct(wanted) if not _may_find(context, request.key_type, key)}
    is_denied = bool(wanted) and all([key in denied async for key in slices.over(wanted)])
    shards, refused = await _shards(parts, request.key_type, ensures=not is_denied)
    ends = {node_id: (host, port) for node_id, host, port, _ in parts.endpoints_for(context.connection.listener)}

    def find(key: str) -> Coordinator:
        if key in denied:
            return Coordinator(key, -1, "", -1, denial(_RESOURCES[request.key_type]))
        if refused is not None:
            return Coordinator(key, -1, "", -1, refused.code, refused.message or None)
        if not key and request.key_type == KEY_TRANSACTION:
            return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
        leader = shards.leader_of(key)
        if leader not in ends:
            return Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(key, leader, *ends[leader])

    if context.version >= BATCH_SINCE:
        return FindCoordinatorResponse(coordinators=[find(key) async for key in slices.over(wanted)])
    found = find(request.key)
    text = found.error_message if found.error_code else ErrorCode.NONE.name
    return FindCoordinatorResponse(error_code=found.error_code, error_message=text, node_id=found.node_id, host=found.host, port=found.port)


def _may_find(context: RequestContext, key_type: int, key: str) -> bool:
    if key_type not in _RESOURCES:
        return True
    if key_type == KEY_SHARE:
        return context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER)
    return context.may(Operation.DESCRIBE, _RESOURCES[key_type], key)


async def _shards(parts: Parts, key_type: int, *, ensures: bool) -> tuple[CoordinatorRuntime[Any], KafkaError | None]:
    """Returns the coordinators of this kind, whose topic exists if ``ensures`` asks for that; or why there are none."""
    shards: CoordinatorRuntime[Any] = parts.transactions if key_type == KEY_TRANSACTION else parts.groups
    try:
        if key_type == KEY_SHARE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "this broker has no share groups yet")
        if key_type not in (KEY_GROUP, KEY_TRANSACTION):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator key type {key_type} is not known")
        if ensures:
            await shards.ensure_topic()
    except KafkaError as error:
        return shards, error
    return shards, None


SERVICE = service(FindCoordinatorRequest, handle, needs=Asks.HANDLER)
