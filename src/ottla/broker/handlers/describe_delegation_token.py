"""DescribeDelegationToken, versions 1-3: tokens of some owners, or of all, that who asks may see (KIP-48, KIP-373).  v2 flexible.

Those are one's own: as the owner, as who asked for it, as a renewer. Of others, DESCRIBE on the token or DESCRIBE_TOKENS on its owner is
needed; the rest is left out. The HMAC comes with each, as with Kafka.
"""

from __future__ import annotations

from ottla.broker.handlers.token_requests import first_hop, keys_of
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.controller.delegation_tokens import is_known_to
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribedToken,
    DescribedTokenRenewer,
)
from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.security.principal import Principal


async def handle(parts: Parts, context: RequestContext, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    try:
        keys = keys_of(parts, context)
    except KafkaError as error:
        return _refused(request, context, error.code)
    owners = None if request.owners is None else {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    found = []
    if owners is None or owners:
        async for token in Slices(parts.world.clock).over(list(parts.image.delegation_tokens.values())):
            if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
                continue
            if _may_see(context, token):
                found.append(_described(token, keys.hmac_of(token.token_id)))
    return DescribeDelegationTokenResponse(tokens=found)


def _may_see(context: RequestContext, token: DelegationTokenRecord) -> bool:
    return (
        is_known_to(token, str(Principal(context.principal.kind, context.principal.name)))
        or context.may_quietly(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.may_quietly(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(token: DelegationTokenRecord, token_hmac: bytes) -> DescribedToken:
    owner, requester, *renewers = (Principal(*_divided(text)) for text in (token.owner, token.requester, *token.renewers))
    return DescribedToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[DescribedTokenRenewer(renewer.kind, renewer.name) for renewer in renewers],
    )


def _divided(text: str) -> tuple[str, str]:
    """Returns type and name, whatever another kind of controller has recorded."""
    kind, _, name = text.partition(":")
    return kind, name


def _refused(request: DescribeDelegationTokenRequest, context: RequestContext, code: int) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code)


SERVICE = service(DescribeDelegationTokenRequest, handle, needs=Asks.HANDLER, first=first_hop(_refused))
