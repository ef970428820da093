"""Which requests the broker serves, in which versions (KIP-35, KIP-511, KIP-584).

The response header is always version 0, so that a client of any age can read the answer.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string, uuid


class ApiVersionsRequest(Request, api_key=18, versions=(0, 4), flexible=3):
    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)
    asks_incarnation: bool = boolean(since=3, tag=10_000)
    """Ottla's own, which others pass over: a process that has not joined the cluster yet says which one it is, and nothing else."""
    node_id: int = int32(default=-1, since=3, tag=10_001)
    """Ottla's own: the node that makes the connection, if it is one."""


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Response, api_key=18, versions=(0, 4), flexible=3):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(default=-1, since=3, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
    incarnation_id: bytes = uuid(since=3, tag=10_000)
    """Of the process that was asked for it."""
