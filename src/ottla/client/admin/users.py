"""SCRAM users: which mechanisms they have credentials for, and changes of them (KIP-554)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.base import AdminBase, error_of, raise_for
from ottla.client.wrong_calls import members, named
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.security.scram import SALT_BYTES, ScramMechanism
from ottla.types import Secret

DEFAULT_ITERATIONS: Final = 4096


@dataclass(frozen=True, slots=True)
class UserChange:
    """A credential of a user: set to what ``password`` makes, or deleted without one. ``mechanism`` is SCRAM-SHA-256 or SCRAM-SHA-512.

    A password that is given as text is kept as a Secret, which no ``repr`` shows.
    """

    user: str
    """The user's name, as in ``User:alice``, without ``User:``."""
    mechanism: str
    """SCRAM-SHA-256 or SCRAM-SHA-512."""
    password: str | Secret | None = None
    """The new password; None deletes the credential."""
    iterations: int = DEFAULT_ITERATIONS
    """How often the password is hashed: 4,096 to 16,384."""

    def __post_init__(self) -> None:
        if not isinstance(self.password, str | Secret | None):
            raise TypeError(f"UserChange: password is {type(self.password).__name__}, and a str is expected")
        if isinstance(self.password, str):
            object.__setattr__(self, "password", Secret(self.password))


class UserAdmin(AdminBase):
    async def describe_users(self, names: Iterable[str] | None = None) -> dict[str, Mapping[str, int] | KafkaError]:
        """Returns mechanisms and their iterations, by user: of all users, or of these."""
        users = None if names is None else [UserName(name) for name in named(names, "describe_users")]
        response = await self._cluster.ask(None, DescribeUserScramCredentialsRequest(users), DescribeUserScramCredentialsResponse)
        raise_for(response.error_code, response.error_message)
        found: dict[str, Mapping[str, int] | KafkaError] = {}
        for result in response.results:
            infos = {_name_of(info.mechanism): info.iterations for info in result.credential_infos}
            found[result.user] = error_of(result.error_code, result.error_message) or infos
        return found

    async def alter_users(self, changes: Sequence[UserChange]) -> dict[str, KafkaError | None]:
        """Creates, changes and deletes SCRAM users; one outcome for each. Sends no password, only what PBKDF2 makes of it."""
        changes = members(changes, "alter_users", UserChange)
        mechanisms = [_mechanism(change.mechanism) for change in changes]
        deletions = [
            ScramCredentialDeletion(change.user, mechanism.number)
            for change, mechanism in zip(changes, mechanisms)
            if change.password is None
        ]
        upsertions = []
        for change, mechanism in zip(changes, mechanisms):
            if isinstance(change.password, Secret):
                salt = self._cluster.world.secret_bytes(SALT_BYTES)
                salted = await asyncio.to_thread(mechanism.salted, change.password, salt, change.iterations)
                upsertions.append(ScramCredentialUpsertion(change.user, mechanism.number, change.iterations, salt, salted))
        request = AlterUserScramCredentialsRequest(deletions, upsertions)
        response = await self._cluster.ask(None, request, AlterUserScramCredentialsResponse)
        return {result.user: error_of(result.error_code, result.error_message) for result in response.results}


def _mechanism(name: str) -> ScramMechanism:
    found = ScramMechanism.named(name)
    if found is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{name[:40]!r}: SCRAM-SHA-256 and SCRAM-SHA-512 are supported")
    return found


def _name_of(number: int) -> str:
    found = ScramMechanism.numbered(number)
    return f"UNKNOWN-{number}" if found is None else found.text
