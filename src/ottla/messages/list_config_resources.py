"""The names of resources that have configurations of their own (KIP-1142). Version 0 knows client metrics only."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api_key=74, versions=(0, 1), flexible=0):
    resource_types: list[int] = array(int8(), since=1)


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8(default=16, since=1)


class ListConfigResourcesResponse(Response, api_key=74, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
