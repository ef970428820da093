"""Which SASL mechanism a connection is going to authenticate by (KIP-43). Version 0: bare tokens follow; 1: SaslAuthenticate (KIP-152)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, api_key=17, versions=(0, 1)):
    mechanism: str = string()


class SaslHandshakeResponse(Response, api_key=17, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string())
