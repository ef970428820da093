"""Groups that this broker coordinates."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, api_key=16, versions=(0, 5), flexible=3):
    states_filter: list[str] = array(string(), since=4)
    types_filter: list[str] = array(string(), since=5)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4)
    group_type: str = string(since=5)


class ListGroupsResponse(Response, api_key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
