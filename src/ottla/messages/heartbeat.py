"""A member of a classic group is alive."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request, api_key=12, versions=(0, 4), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)


class HeartbeatResponse(Response, api_key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
