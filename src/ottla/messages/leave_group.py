"""Members leave a classic group; from v3 several at once."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, nullable=3)
    reason: str | None = string(default=None, since=5, nullable=5)


class LeaveGroupRequest(Request, api_key=13, versions=(0, 5), flexible=4):
    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable=3)
    error_code: int = int16()


class LeaveGroupResponse(Response, api_key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
