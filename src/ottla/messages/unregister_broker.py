"""Removes a broker that will not return from the cluster (KIP-500)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, int16, int32, string


class UnregisterBrokerRequest(Request, api_key=64, versions=(0, 0), flexible=0):
    broker_id: int = int32()


class UnregisterBrokerResponse(Response, api_key=64, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
