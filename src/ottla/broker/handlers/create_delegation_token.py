"""CreateDelegationToken, versions 1-3: a token for who asks, or for another owner (KIP-48, KIP-373).  v2 flexible; v3 owner.

For another owner CREATE_TOKENS on that user is needed. Its HMAC, which is the token's password, is in the answer, and kept nowhere.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.broker.handlers.token_requests import LIFETIME, RENEWAL, decided, first_hop, keys_of, shorter
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.controller.delegation_tokens import create_token
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.security.principal import USER, Principal
from ottla.types import uuid_text

_ID_BYTES: Final = 16


async def handle(parts: Parts, context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    try:
        return await _made(parts, context, request)
    except KafkaError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            raise
        return _refused(request, context, error.code)


async def _made(parts: Parts, context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester, owner = _requester(context), _owner(request, context)
    if owner != requester and not context.may(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    # The session of a token is a user's: one for anything else would be for the user of that name.
    if any(kind != USER for kind in (owner.kind, *(renewer.principal_type for renewer in request.renewers))):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    keys, config = keys_of(parts, context), parts.config
    decision = partial(
        create_token,
        token_id=_token_id(parts.world.secret_bytes(_ID_BYTES)),
        owner=str(owner),
        requester=str(requester),
        renewers=[str(Principal(renewer.principal_type, renewer.principal_name)) for renewer in request.renewers],
        now_ms=parts.world.clock.now_ms(),
        max_ms=shorter(request.max_lifetime_ms, config[LIFETIME]),
        renew_ms=config[RENEWAL],
    )
    [token] = (await decided(parts, decision)).records
    assert isinstance(token, DelegationTokenRecord), "a token is one record"
    return CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiration_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=keys.hmac_of(token.token_id),
    )


def _requester(context: RequestContext) -> Principal:
    return Principal(context.principal.kind, context.principal.name)


def _owner(request: CreateDelegationTokenRequest, context: RequestContext) -> Principal:
    if not request.owner_principal_name:
        return _requester(context)
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def _token_id(drawn: bytes) -> str:
    """Returns an id that does not start with ``-``, which tools would take for an option."""
    return uuid_text(bytes([drawn[0] & 0x7F]) + drawn[1:])


def _refused(request: CreateDelegationTokenRequest, context: RequestContext, code: int) -> CreateDelegationTokenResponse:
    requester, owner = _requester(context), _owner(request, context)
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


SERVICE = service(
    CreateDelegationTokenRequest,
    handle,
    roles=BROKER_AND_CONTROLLER,
    is_forwarded=True,
    needs=Asks.HANDLER,
    first=first_hop(_refused),
)
