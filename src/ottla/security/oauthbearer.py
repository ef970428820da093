"""OAUTHBEARER: who has a token that the cluster's issuer has signed is its subject (RFC 7628, KIP-255, KIP-768).

The client's one message is a header, ``auth=Bearer TOKEN`` and extensions, between bytes of value 1. A token that is refused ends the
exchange at once, without the RFC's error message and the client's empty answer to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ottla.security.jwt import Claims
from ottla.security.mechanism import Answer, Refusal
from ottla.types import Secret

OAUTHBEARER: Final = "OAUTHBEARER"
_MESSAGE_BYTES_MAX: Final = 128 << 10
_HEADER: Final = re.compile(r"(?:n|y),(?:a=(?P<authzid>(?:[^=,\0]|=2C|=3D)+))?,")
_BEARER: Final = re.compile(r"auth=bearer +(?P<token>[A-Za-z0-9._~+/=-]+)", re.IGNORECASE)
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[\x20-\x7e\t\r\n]*")
_SEPARATOR: Final = "\x01"


class OAuthServer:
    """A ``ServerMechanism``. ``verify`` gives a token's claims, or refuses it; ``now_ms`` is of the wall clock."""

    def __init__(self, verify: Callable[[str], Claims], now_ms: Callable[[], int]) -> None:
        self._verify = verify
        self._now_ms = now_ms

    def step(self, token: bytes) -> Answer:
        if len(token) > _MESSAGE_BYTES_MAX:
            raise Refusal(f"an OAUTHBEARER message of {len(token)} bytes")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise Refusal(f"an OAUTHBEARER message of {len(token)} bytes that is not UTF-8") from None
        first, *pairs = text.split(_SEPARATOR)
        header = _HEADER.fullmatch(first)
        if header is None or pairs[-2:] != ["", ""]:
            raise Refusal("an OAUTHBEARER message without a header, or without an end")
        bearers = [found for pair in pairs[:-2] if (found := _BEARER.fullmatch(pair)) is not None]
        if len(bearers) != 1 or not all(_BEARER.fullmatch(pair) or _is_extension(pair) for pair in pairs[:-2]):
            raise Refusal("an OAUTHBEARER message that does not have one token, and extensions")
        claims = self._verify(bearers[0]["token"])
        authorization_id = (header["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization_id not in ("", claims.subject):
            raise Refusal("an OAUTHBEARER message whose authorization id is not the token's subject")
        return Answer(b"", claims.subject, lifetime_ms=max(1, claims.ends_ms - self._now_ms()))


def _is_extension(pair: str) -> bool:
    return _EXTENSION.fullmatch(pair) is not None and not pair.lower().startswith("auth=")


def oauth_token(token: Secret) -> bytes:
    """Returns the one message of a client."""
    return f"n,,{_SEPARATOR}auth=Bearer {token.reveal()}{_SEPARATOR}{_SEPARATOR}".encode()
