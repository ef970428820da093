"""PLAIN: authorization id, name and password, between zero bytes (RFC 4616, KIP-43).

An unknown user takes the same steps as a wrong password.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from ottla.security.mechanism import Answer, Refusal, not_shown
from ottla.types import Secret

PLAIN: Final = "PLAIN"
_NO_PASSWORD: Final = Secret("\0")  # which no message can have


class PlainServer:
    """A ``ServerMechanism``. ``find`` gives a user's password."""

    def __init__(self, find: Callable[[str], Secret | None]) -> None:
        self._find = find

    def step(self, token: bytes) -> Answer:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise Refusal(f"a PLAIN message of {len(token)} bytes that is not UTF-8") from None
        if len(parts) != 3:
            raise Refusal(f"a PLAIN message of {len(parts)} parts where there are 3")
        authorization_id, name, password = parts
        if not name or not password:
            raise Refusal("a PLAIN message without a name or without a password")
        if authorization_id not in ("", name):
            raise Refusal("a PLAIN message whose authorization id is not its name")
        known = self._find(name)
        expected = _NO_PASSWORD if known is None else known
        is_right = hmac.compare_digest(expected.reveal().encode(), password.encode())
        if not is_right or known is None:
            raise not_shown(None if known is None else name)
        return Answer(b"", name)


def plain_token(name: str, password: Secret) -> bytes:
    """Returns the one message of a client."""
    return b"\0".join((b"", name.encode(), password.reveal().encode()))
