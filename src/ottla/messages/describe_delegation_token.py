"""Delegation tokens, of some owners or of all (KIP-48, KIP-373)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, int16, int32, int64, string


class DescribedOwner(Struct):
    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Request, api_key=41, versions=(1, 3), flexible=2):
    owners: list[DescribedOwner] | None = array(DescribedOwner, nullable=1)


class DescribedTokenRenewer(Struct):
    principal_type: str = string()
    principal_name: str = string()


class DescribedToken(Struct):
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    renewers: list[DescribedTokenRenewer] = array(DescribedTokenRenewer)


class DescribeDelegationTokenResponse(Response, api_key=41, versions=(1, 3), flexible=2):
    error_code: int = int16()
    tokens: list[DescribedToken] = array(DescribedToken)
    throttle_time_ms: int = int32()
