"""A delegation token expires earlier, or at once (KIP-48)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, binary, int16, int32, int64


class ExpireDelegationTokenRequest(Request, api_key=40, versions=(1, 2), flexible=2):
    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Response, api_key=40, versions=(1, 2), flexible=2):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
