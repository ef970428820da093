"""A client's request on its way from a broker to the active controller, whole, with who sent it (KIP-590)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Stored, binary, boolean, int16, int32, int64, string


class EnvelopeRequest(Request, api_key=58, versions=(0, 0), flexible=0):
    request_data: bytes = binary()
    request_principal: bytes | None = binary(nullable=0)
    client_host_address: bytes = binary()


class EnvelopeResponse(Response, api_key=58, versions=(0, 0), flexible=0):
    response_data: bytes | None = binary(default=None, nullable=0)
    error_code: int = int16()
    metadata_end_offset: int = int64(default=-1, tag=10_000)
    """Ottla's own, which others pass over: up to where the metadata is committed that the answer speaks of."""
    pause_ms: int = int32(default=0, tag=10_001)
    """Ottla's own: how long the broker that has passed the request on does not read its client, which is above a quota."""


class DefaultPrincipalData(Stored, versions=(0, 0), flexible=0):
    """A principal's bytes in an envelope, after an int16 of this version."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
