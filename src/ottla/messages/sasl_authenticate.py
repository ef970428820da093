"""A token of a SASL mechanism, and the server's next one (KIP-152). Version 1: how long the session lasts (KIP-368)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, binary, int16, int64, string


class SaslAuthenticateRequest(Request, api_key=36, versions=(0, 2), flexible=2):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Response, api_key=36, versions=(0, 2), flexible=2):
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64(since=1)
