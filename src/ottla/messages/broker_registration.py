"""A broker makes itself known to the active controller, which gives it an epoch (KIP-631).

v2 has the log directories (KIP-858), v3 the epoch before an orderly stop (KIP-966).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Request, api_key=62, versions=(0, 4), flexible=0):
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable=0)
    is_migrating_zk_broker: bool = boolean(since=1)
    log_dirs: list[bytes] = array(uuid(), since=2)
    previous_broker_epoch: int = int64(default=-1, since=3)
    previous_incarnations: list[bytes] = array(uuid(), since=3, tag=10_000)
    """Ottla's own, which others pass over: processes of the broker that were killed before they knew their epochs, and lost nothing."""


class BrokerRegistrationResponse(Response, api_key=62, versions=(0, 4), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
