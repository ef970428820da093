"""A member enters a rebalance of a classic group, and waits until all have."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, boolean, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Request, api_key=11, versions=(0, 9), flexible=6):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(default=-1, since=1)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable=5)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(default=None, since=8, nullable=8)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=5, nullable=5)
    metadata: bytes = binary()


class JoinGroupResponse(Response, api_key=11, versions=(0, 9), flexible=6):
    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(default=None, since=7, nullable=7)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
