"""Delegation tokens: made, listed, renewed, ended (KIP-48)."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.base import AdminBase, raise_for
from ottla.client.wrong_calls import check_name, named
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.create_delegation_token import CreatableRenewer, CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribedOwner,
)
from ottla.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.security.principal import Principal
from ottla.types import Secret


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Principals as ``User:alice``, times in milliseconds since 1970. In SCRAM ``token_id`` is the client's name, ``hmac`` its password."""

    token_id: str
    """Its name, which a client gives as ``sasl_plain_username``."""
    hmac: Secret
    """Its password, which a client gives as ``sasl_plain_password``."""
    owner: str
    """Whom its bearer acts as, as ``User:alice``."""
    requester: str
    """Who asked for it."""
    renewers: tuple[str, ...]
    """Who may renew it beside its owner."""
    issued_ms: int
    """When it was made, in milliseconds since 1970."""
    expires_ms: int
    """When it ends unless it is renewed, in milliseconds since 1970."""
    max_ms: int
    """When it ends in any case, in milliseconds since 1970."""


class TokenAdmin(AdminBase):
    async def create_token(self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1) -> DelegationToken:
        """Creates a token for the caller, or for another ``owner``. KafkaError with the broker's code when it is refused."""
        if owner is not None:
            check_name("owner", owner)
        of = None if owner is None else Principal.parse(owner)
        parsed = [Principal.parse(renewer) for renewer in named(renewers, "create_token", "renewers")]
        request = CreateDelegationTokenRequest(
            None if of is None else of.kind,
            None if of is None else of.name,
            [CreatableRenewer(renewer.kind, renewer.name) for renewer in parsed],
            max_lifetime_ms,
        )
        made = await self._cluster.ask(None, request, CreateDelegationTokenResponse)
        _check(made.error_code)
        return DelegationToken(
            made.token_id,
            _secret(made.hmac),
            str(Principal(made.principal_type, made.principal_name)),
            str(Principal(made.token_requester_principal_type, made.token_requester_principal_name)),
            tuple(map(str, parsed)),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
        )

    async def describe_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """Returns the tokens that the caller may see: of these owners, or all."""
        parsed = None if owners is None else [Principal.parse(owner) for owner in named(owners, "describe_tokens", "owners")]
        asked = None if parsed is None else [DescribedOwner(owner.kind, owner.name) for owner in parsed]
        answer = await self._cluster.ask(None, DescribeDelegationTokenRequest(asked), DescribeDelegationTokenResponse)
        _check(answer.error_code)
        return [
            DelegationToken(
                token.token_id,
                _secret(token.hmac),
                str(Principal(token.principal_type, token.principal_name)),
                str(Principal(token.token_requester_principal_type, token.token_requester_principal_name)),
                tuple(str(Principal(renewer.principal_type, renewer.principal_name)) for renewer in token.renewers),
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
            )
            for token in answer.tokens
        ]

    async def renew_token(self, hmac: Secret | str, *, period_ms: int = -1) -> int:
        """Renews the token for ``period_ms``, or for the cluster's default. Returns when it will expire."""
        answer = await self._cluster.ask(None, RenewDelegationTokenRequest(_bytes(hmac), period_ms), RenewDelegationTokenResponse)
        _check(answer.error_code)
        return answer.expiry_timestamp_ms

    async def expire_token(self, hmac: Secret | str, *, period_ms: int = -1) -> int:
        """Lets the token expire ``period_ms`` from now, and returns that time. A negative period removes it at once."""
        answer = await self._cluster.ask(None, ExpireDelegationTokenRequest(_bytes(hmac), period_ms), ExpireDelegationTokenResponse)
        _check(answer.error_code)
        return answer.expiry_timestamp_ms


_WAYS_OUT: Final = {
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens are asked for on a connection that has authenticated, and not by a token",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "this broker, or the controller, has no delegation.token.secret.key: set the same on every node, and restart them"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "a token of another owner needs CREATE_TOKENS on that user",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "the token's owner and its renewers may do that",
    ErrorCode.POLICY_VIOLATION: "there are as many tokens as the cluster, or this user, may have: expire some of them",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owners and renewers are users, as User:alice",
}


def _check(code: int) -> None:
    raise_for(code, _WAYS_OUT.get(code))  # type: ignore[call-overload]  # an ErrorCode is an int


def _secret(hmac: bytes) -> Secret:
    return Secret(base64.b64encode(bytes(hmac)).decode())


def _bytes(hmac: Secret | str) -> bytes:
    """Returns the bytes of a token's ``hmac``, also where it was kept as a text. TypeError for anything else, which is not shown."""
    text: object = hmac.reveal() if isinstance(hmac, Secret) else hmac
    if not isinstance(text, str):
        raise TypeError(f"hmac is of type {type(hmac).__name__}: the hmac of a DelegationToken is expected, or its text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "hmac is no base64: the hmac of a DelegationToken is expected, or its text") from None
