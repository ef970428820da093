"""A controller, active or not, makes its addresses and features known (KIP-919)."""

from __future__ import annotations

from ottla.messages.broker_registration import Feature, Listener
from ottla.wire.schema import Request, Response, array, boolean, int16, int32, string, uuid


class ControllerRegistrationRequest(Request, api_key=70, versions=(0, 0), flexible=0):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Response, api_key=70, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
