"""Classic groups: state, protocol, members."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, boolean, int16, int32, string


class DescribeGroupsRequest(Request, api_key=15, versions=(0, 6), flexible=5):
    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=4, nullable=4)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, since=6, nullable=6)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(default=-2147483648, since=3)


class DescribeGroupsResponse(Response, api_key=15, versions=(0, 6), flexible=5):
    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)
