"""Empty groups and their offsets vanish."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=42, versions=(0, 2), flexible=2):
    groups_names: list[str] = array(string())


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, api_key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
