"""Who asks for a guarded page: by a certificate, or by a name and a password (RFC 7617).

Names are looked up in ``listener.name.admin.plain.sasl.jaas.config`` (``user_NAME="PASSWORD"``), then among the cluster's SCRAM users. An
unknown user takes the same steps as a wrong password. A correct password is remembered for a minute, by an HMAC under a key of this
process, and only for the credential that it matched: a credential that is changed or removed takes effect at once.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import os
from typing import Final

from ottla.broker.requests.listener_security import ADMIN, USER_OPTION, credential_of
from ottla.broker.status import Node
from ottla.config.jaas import JAAS, Login, LoginModule, parse_jaas
from ottla.errors import ErrorCode, KafkaError
from ottla.security.principal import USER, Principal
from ottla.security.scram import ScramCredential, ScramMechanism
from ottla.types import Secret

REMEMBERED_MS: Final = 60_000
REMEMBERED_MAX: Final = 1_000
AT_ONCE: Final = 2
"""Passwords that are derived at the same time: 4,096 iterations take some milliseconds of a core."""
ITERATIONS: Final = 4_096
KEY_BYTES: Final = 32
PASSWORD_BYTES_MAX: Final = 1_024
LOGIN: Final = f"plain.{JAAS}"


class Callers:
    """The users of the admin pages of one node. INVALID_CONFIG for a file of users that cannot be read."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._key = os.urandom(KEY_BYTES)
        self._decoy = ScramCredential(os.urandom(KEY_BYTES), os.urandom(KEY_BYTES), b"", ITERATIONS)
        self._remembered: dict[bytes, tuple[int, ScramCredential]] = {}  # until when
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._login: tuple[Secret | None, Login | None] = None, None
        login = self._users()
        if login is not None and login.module is not LoginModule.PLAIN:
            text = f"listener.name.admin.{LOGIN} names {login.module}; {LoginModule.PLAIN} is expected"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)

    async def principal(self, authorization: str) -> Principal | None:
        """Returns the principal of the header's value; None for a wrong one."""
        found = _basic(authorization)
        if found is None:
            return None
        name, password = found
        login = self._users()
        own = None if login is None else login.options.get(USER_OPTION + name)
        is_right = own is not None and own == password
        if not is_right:
            is_right = await self._is_scram_users(name, password) and own is None
        return Principal(USER, name) if is_right else None

    def _users(self) -> Login | None:
        """Returns the users of the key, whose value may have changed since the start."""
        secret: Secret | None = self._node.config.of_listener(ADMIN, LOGIN)
        if secret is not self._login[0]:
            self._login = secret, None if secret is None else parse_jaas(secret.reveal())
        return self._login[1]

    async def _is_scram_users(self, name: str, password: Secret) -> bool:
        is_right = False
        for mechanism in ScramMechanism:
            credential = credential_of(self._node.status.image, name, mechanism)
            is_right |= await self._is_right(name, password, mechanism, credential or self._decoy) and credential is not None
            if is_right:
                break
        return is_right

    async def _is_right(self, name: str, password: Secret, mechanism: ScramMechanism, credential: ScramCredential) -> bool:
        now_ms = self._node.world.clock.monotonic_ms()
        text = f"{mechanism.name}\0{name}\0{password.reveal()}".encode("utf-8", "surrogatepass")
        mark = hmac.digest(self._key, text, "sha256")
        until_ms, known = self._remembered.get(mark, (0, None))
        if now_ms < until_ms and known == credential:
            return True
        async with self._turn:
            salted = await asyncio.to_thread(mechanism.salted, password, credential.salt, credential.iterations)
        made = ScramCredential.of_salted(mechanism, salted, credential.salt, credential.iterations)
        if not hmac.compare_digest(made.stored_key, credential.stored_key):
            return False
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[mark] = now_ms + REMEMBERED_MS, credential
        return True


def _basic(authorization: str) -> tuple[str, Secret] | None:
    """Returns name and password of a header ``Basic ...``."""
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic" or len(encoded) > PASSWORD_BYTES_MAX * 2:
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, Secret(password)) if name and colon and password else None
