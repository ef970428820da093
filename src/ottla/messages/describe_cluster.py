"""The brokers and the controller (KIP-700)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Request, api_key=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(default=1, since=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=0)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(Response, api_key=60, versions=(0, 2), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    endpoint_type: int = int8(default=1, since=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
