"""Delegation tokens as a password: who shows a token's HMAC by SCRAM is its owner, for as long as the token is good (KIP-48).

The HMAC is that of the token's id, by the secret that the nodes of a cluster share (``delegation.token.secret.key``): it is kept nowhere.
What SCRAM needs of it is derived when the token is first used.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.security.principal import USER
from ottla.security.scram import ITERATIONS_MIN, SALT_BYTES, ScramCredential, ScramMechanism
from ottla.types import Secret

HASH: Final = "sha512"
DERIVED_MAX: Final = 10_000
REMOVED_MAX: Final = 1000
"""Removed tokens that are still known, beyond as many as there are."""
Tokens = Mapping[str, DelegationTokenRecord]
"""By id."""


class TokenUser(Struct, frozen=True):
    """The principal of a token, its proof, and its end."""

    credential: ScramCredential
    name: str
    remaining_ms: int


class TokenKeys:
    """The keys of one node for tokens. ``secret`` is None, or empty, where there are no tokens; ``salt_key`` is this process's own."""

    def __init__(self, secret: Secret | None, salt_key: bytes) -> None:
        self._secret = b"" if secret is None else secret.reveal().encode()
        self._salt_key = salt_key
        self._tokens: Tokens = {}
        self._known: set[str] = set()  # token ids, of which some may have been removed
        self._by_digest: dict[bytes, str] = {}  # the same by the digest of their HMACs
        self._derived: dict[tuple[str, str], ScramCredential] = {}

    @property
    def is_enabled(self) -> bool:
        return bool(self._secret)

    def hmac_of(self, token_id: str) -> bytes:
        """Returns what its owner has in place of a password."""
        assert self.is_enabled, "there are no tokens without a secret"
        return hmac.digest(self._secret, token_id.encode(), HASH)

    def find(self, tokens: Tokens, given: bytes) -> str | None:
        """Returns the id of the token that has this HMAC."""
        if tokens is not self._tokens:
            if len(self._known) > 2 * len(tokens) + REMOVED_MAX:
                self._known.clear()
                self._by_digest.clear()
            for token_id in [token_id for token_id in tokens if token_id not in self._known]:
                self._known.add(token_id)
                self._by_digest[hashlib.sha256(self.hmac_of(token_id)).digest()] = token_id
            self._tokens = tokens
        found = self._by_digest.get(hashlib.sha256(given).digest())
        return found if found is not None and found in tokens and hmac.compare_digest(self.hmac_of(found), given) else None

    def user(self, tokens: Tokens, token_id: str, mechanism: ScramMechanism, now_ms: int) -> TokenUser | None:
        """Returns the user; None for an unknown token, or an expired one, removed or not. ``now_ms`` is of the wall clock."""
        token = tokens.get(token_id) if self.is_enabled else None
        if token is None or not is_good(token, now_ms):
            return None
        kind, _, name = token.owner.partition(":")
        if kind != USER or not name:
            return None
        return TokenUser(self._credential(token_id, mechanism), name, end_ms(token) - now_ms)

    def _credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        key = token_id, mechanism.text
        found = self._derived.get(key)
        if found is None:
            if len(self._derived) >= DERIVED_MAX:
                self._derived.clear()
            salt = hmac.digest(self._salt_key, f"{mechanism.text} {token_id}".encode(), HASH)[:SALT_BYTES]
            password = Secret(password_of(self.hmac_of(token_id)))
            salted = mechanism.salted(password, salt, ITERATIONS_MIN)
            found = self._derived[key] = ScramCredential.of_salted(mechanism, salted, salt, ITERATIONS_MIN)
        return found


def end_ms(token: DelegationTokenRecord) -> int:
    """Returns the wall-clock milliseconds from which on the token is no longer valid."""
    return min(token.expiration_timestamp, token.max_timestamp)


def is_good(token: DelegationTokenRecord, now_ms: int) -> bool:
    return now_ms < end_ms(token)


def password_of(token_hmac: bytes) -> str:
    """Returns the text that a client has as its password."""
    return base64.b64encode(token_hmac).decode()
