"""What the mechanisms of SASL have in common: tokens in, tokens or a name out (RFC 4422)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from ottla.errors import ErrorCode, KafkaError


class Refusal(KafkaError):
    """A client that has not shown who it is. ``message`` is for logs: it names fields, lengths and users that there are.

    It has nothing else that the client sent: what comes as an unknown user's name may be a password.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)


def not_shown(known: str | None) -> Refusal:
    """Returns the refusal of a wrong password for the ``known`` user, or of a user whom nothing knows."""
    return Refusal(
        "an unknown user, whose name is not logged: it may be a password" if known is None else f"a wrong password of user {known!r}"
    )


class Answer(Struct, frozen=True):
    """The server's next token. ``name`` is whom the client has shown itself to be; None while that is open."""

    token: bytes
    name: str | None = None
    token_id: str = ""
    """Of the delegation token that was shown."""
    lifetime_ms: int | None = None
    """How long what was shown is good; None without an end."""


class ServerMechanism(Protocol):
    """One client's exchange, at the server."""

    def step(self, token: bytes) -> Answer:
        """Returns what follows the client's token. Refusal when the client is not let in."""
        ...


class Offer(Protocol):
    """The mechanisms that a listener offers."""

    @property
    def mechanisms(self) -> Sequence[str]: ...

    def begin(self, mechanism: str) -> ServerMechanism:
        """Returns a new exchange by one of the mechanisms."""
        ...

    def session_ms(self, mechanism: str) -> int:
        """Returns how long a session lasts before the client authenticates again; 0 without a limit."""
        ...
