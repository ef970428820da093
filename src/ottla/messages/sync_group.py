"""The leader hands out the assignment, the others fetch theirs."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request, api_key=14, versions=(0, 5), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    protocol_type: str | None = string(default=None, since=5, nullable=5)
    protocol_name: str | None = string(default=None, since=5, nullable=5)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, api_key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = string(default=None, since=5, nullable=5)
    protocol_name: str | None = string(default=None, since=5, nullable=5)
    assignment: bytes = binary()
