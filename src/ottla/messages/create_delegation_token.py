"""A delegation token is made (KIP-48; KIP-373: for another owner)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, int16, int32, int64, string


class CreatableRenewer(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request, api_key=38, versions=(1, 3), flexible=2):
    owner_principal_type: str | None = string(default=None, since=3, nullable=3)
    owner_principal_name: str | None = string(default=None, since=3, nullable=3)
    renewers: list[CreatableRenewer] = array(CreatableRenewer)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, api_key=38, versions=(1, 3), flexible=2):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()
