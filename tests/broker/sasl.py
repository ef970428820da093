"""SASL by hand, for tests that look at each answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from tests.foreign_clients.wire import RawClient

from ottla.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.messages.sasl_handshake import SaslHandshakeRequest
from ottla.security.plain import plain_token
from ottla.security.scram import ScramClient, ScramMechanism
from ottla.types import Secret

JAAS: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_alice="alice-secret";'
)
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENER: Final = "GUARDED"
GUARDED: Final = {
    "listeners": f"PLAINTEXT://127.0.0.1:0,{LISTENER}://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
    "listener.name.guarded.plain.sasl.jaas.config": JAAS,
}
"""A broker with a listener that is guarded, beside one that is not."""
ALICE: Final = plain_token("alice", Secret("alice-secret"))


@contextlib.contextmanager
def sent_together(client: RawClient) -> Iterator[None]:
    """What is sent within leaves at once, so that one receive of the broker has it all."""
    sent: list[bytes] = []
    send_bytes, client.send_bytes = client.send_bytes, sent.append  # type: ignore[method-assign,assignment]
    yield
    client.send_bytes = send_bytes  # type: ignore[method-assign]
    client.send_bytes(b"".join(sent))


def handshake(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.ask(SaslHandshakeRequest(mechanism), version)


def token(client: RawClient, data: bytes, version: int = 2) -> Any:
    return client.ask(SaslAuthenticateRequest(data), version)


def authenticate(client: RawClient, data: bytes = ALICE, version: int = 2) -> Any:
    """By PLAIN; the last answer."""
    handshake(client)
    return token(client, data, version)


def authenticate_by_scram(client: RawClient, name: str, password: str, mechanism: ScramMechanism) -> Any:
    """The last answer; the server has shown that it knows the user, if it is no error."""
    handshake(client, mechanism.text)
    side = ScramClient(mechanism, name, Secret(password), nonce="nonce")
    first = token(client, side.first())
    assert first.error_code == 0
    challenge = side.challenge(bytes(first.auth_bytes))
    last = token(client, side.final(challenge, side.salted(challenge)))
    if not last.error_code:
        side.verify(bytes(last.auth_bytes))
    return last


def with_users(client: RawClient, users: dict[str, str]) -> None:
    """The users have credentials of both SCRAM mechanisms."""
    salt = b"0123456789abcdef"
    upsertions = [
        ScramCredentialUpsertion(name, mechanism.number, 4096, salt, mechanism.salted(Secret(password), salt, 4096))
        for name, password in users.items()
        for mechanism in ScramMechanism
    ]
    answer = client.ask(AlterUserScramCredentialsRequest([], upsertions), 0)
    assert [(result.user, result.error_code) for result in answer.results] == [(name, 0) for name in users]
