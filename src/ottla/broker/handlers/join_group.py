"""JoinGroup, versions 0-9: parked until the rebalance has gathered its members.

v1 rebalance timeout; v4 an unnamed member is first given an id (MEMBER_ID_REQUIRED); v5 static members; v9 may
ask the leader to skip the assignment.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.handlers.fresh_ids import fresh_id
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Need, service
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import JoinGroup
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_NAME_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOLS_MAX: Final = 1000
"""That one member offers: its group looks through all of them in one decision."""


async def handle(parts: Parts, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = context.version
    if len(request.protocols) > PROTOCOLS_MAX:
        return JoinGroupResponse(error_code=ErrorCode.INVALID_REQUEST, protocol_name=_name(None, version), member_id=request.member_id)
    timeout_ms = request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_SINCE else request.session_timeout_ms
    client_id = context.client_id or ""

    def command(token: int) -> JoinGroup:
        return JoinGroup(
            token=token,
            group_id=request.group_id,
            member_id=request.member_id,
            fresh_member_id=f"{request.group_instance_id or client_id}-{fresh_id(parts.world.random)}",
            group_instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=f"/{context.connection.client_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            requires_known_member_id=version >= MEMBER_ID_REQUIRED_SINCE and request.group_instance_id is None,
            supports_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
            image=parts.groups.image,
        )

    try:
        result = await parts.groups.ask(request.group_id, command)
    except KafkaError as error:
        return JoinGroupResponse(error_code=error.code, protocol_name=_name(None, version), member_id=request.member_id)
    return JoinGroupResponse(
        error_code=result.error_code,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=_name(result.protocol_name, version),
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata) for member in result.members],
    )


def _name(protocol_name: str | None, version: int) -> str | None:
    return "" if protocol_name is None and version < NULL_PROTOCOL_NAME_SINCE else protocol_name


SERVICE = service(JoinGroupRequest, handle, waits_for_others=True, needs=Need(Operation.READ, ResourceType.GROUP, "group_id"))
