"""Heartbeat, versions 0-4: reports that the member is alive; the answer says whether a rebalance is in progress. v3 static members.

While the group is being loaded the answer is "no error", as in Kafka: each member gets a new session after the load.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Need, service
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import Heartbeat
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(parts: Parts, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    def command(token: int) -> Heartbeat:
        return Heartbeat(token, request.group_id, request.generation_id, request.member_id, request.group_instance_id, parts.groups.image)

    try:
        result = await parts.groups.ask(request.group_id, command)
    except KafkaError as error:
        is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    return HeartbeatResponse(error_code=result.error_code)


SERVICE = service(HeartbeatRequest, handle, needs=Need(Operation.READ, ResourceType.GROUP, "group_id"))
