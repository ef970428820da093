"""A client's side of SASL, for clients and for nodes among each other: what is sent, and when the server has shown itself.

What PBKDF2 makes of a password is kept for the salt and the count that it was made for: a client with many connections derives it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ottla.security.mechanism import Refusal
from ottla.security.oauthbearer import OAUTHBEARER, oauth_token
from ottla.security.plain import plain_token
from ottla.security.scram import ITERATIONS_MAX, ScramChallenge, ScramClient, ScramMechanism
from ottla.types import Secret

INLINE_ITERATIONS_MAX: Final = ITERATIONS_MAX
"""What takes longer is derived in a thread: 16,384 are ten milliseconds."""


class ClientExchange(Protocol):
    """One connection's. ``first``, then ``step`` with each of the server's tokens."""

    def first(self) -> bytes: ...

    def work(self, token: bytes) -> Callable[[], object] | None:
        """Returns what is to be done before ``step``, away from the loop; None where that takes no time."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Returns the next token; None when the server's was the last one, and right. Refusal when it was wrong."""
        ...


class Credentials:
    """A name and a password, for one mechanism. ``by_token`` when they are a delegation token's id and HMAC, for SCRAM."""

    def __init__(self, mechanism: str, name: str, password: Secret, *, by_token: bool = False) -> None:
        self.mechanism: Final = mechanism
        self.name: Final = name
        self._password = password
        self._by_token = by_token
        self._salted: tuple[bytes, int, bytes] | None = None  # for which salt and count, and what it is

    def begin(self, nonce: Callable[[], str]) -> ClientExchange:
        """Returns a new exchange; ``nonce`` is asked for where the mechanism needs one."""
        scram = ScramMechanism.named(self.mechanism)
        if scram is None:
            return _OneMessage(self.mechanism, plain_token(self.name, self._password))
        return _Scram(self, ScramClient(scram, self.name, self._password, nonce=nonce(), by_token=self._by_token))

    def knows(self, challenge: ScramChallenge) -> bool:
        return self._salted is not None and self._salted[:2] == (challenge.salt, challenge.iterations)

    def salted(self, side: ScramClient, challenge: ScramChallenge) -> bytes:
        if self._salted is None or not self.knows(challenge):
            self._salted = challenge.salt, challenge.iterations, side.salted(challenge)
        return self._salted[2]


class OAuthCredentials:
    """A token, which ``asks`` gives: a text, or something to be awaited for one. Each connection starts with a new one."""

    mechanism: Final = OAUTHBEARER
    name: Final = "by its token"

    def __init__(self, asks: Callable[[], object]) -> None:
        self.asks: Final = asks
        self._token = Secret("")

    def take(self, token: object) -> None:
        """Takes what was given. Refusal for what no header can have."""
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token or " " in token:
            raise Refusal("sasl_oauth_token has not given a token: a text without spaces is expected")
        self._token = Secret(token)

    def begin(self, nonce: Callable[[], str]) -> ClientExchange:
        return _OneMessage(self.mechanism, oauth_token(self._token))


class _OneMessage:
    def __init__(self, mechanism: str, token: bytes) -> None:
        self._mechanism = mechanism
        self._token = token

    def first(self) -> bytes:
        return self._token

    def work(self, token: bytes) -> Callable[[], object] | None:
        return None

    def step(self, token: bytes) -> bytes | None:
        if token:
            raise Refusal(f"the server has answered {self._mechanism} with {len(token)} bytes where there are none")
        return None


class _Scram:
    def __init__(self, credentials: Credentials, side: ScramClient) -> None:
        self._credentials = credentials
        self._side = side
        self._has_proved = False

    def first(self) -> bytes:
        return self._side.first()

    def work(self, token: bytes) -> Callable[[], object] | None:
        if self._has_proved:
            return None
        challenge = self._side.challenge(token)
        if challenge.iterations <= INLINE_ITERATIONS_MAX or self._credentials.knows(challenge):
            return None
        return lambda: self._credentials.salted(self._side, challenge)

    def step(self, token: bytes) -> bytes | None:
        if self._has_proved:
            self._side.verify(token)
            return None
        self._has_proved = True
        challenge = self._side.challenge(token)
        return self._side.final(challenge, self._credentials.salted(self._side, challenge))
