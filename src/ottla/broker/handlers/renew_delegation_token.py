"""RenewDelegationToken, versions 1-2: a token is good for longer, for its owner and its renewers (KIP-48).  v2 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers.token_requests import RENEWAL, decided, first_hop, keys_of, shorter
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.controller.decided import Recorded
from ottla.controller.delegation_tokens import renew_token
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.metadata.image import ClusterImage
from ottla.security.principal import Principal

if TYPE_CHECKING:
    from ottla.broker.parts import Parts


async def handle(parts: Parts, context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    try:
        keys, asker = keys_of(parts, context), str(Principal(context.principal.kind, context.principal.name))

        def decision(image: ClusterImage) -> Recorded:
            token_id = keys.find(image.delegation_tokens, bytes(request.hmac))
            return renew_token(
                image, token_id, asker, now_ms=parts.world.clock.now_ms(), renew_ms=shorter(request.renew_period_ms, parts.config[RENEWAL])
            )  # fmt: skip

        [record] = (await decided(parts, decision)).records
    except KafkaError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            raise
        return _refused(request, context, error.code)
    assert isinstance(record, DelegationTokenRecord), "a renewed token is one record"
    return RenewDelegationTokenResponse(expiry_timestamp_ms=record.expiration_timestamp)


def _refused(request: RenewDelegationTokenRequest, context: RequestContext, code: int) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


SERVICE = service(
    RenewDelegationTokenRequest,
    handle,
    roles=BROKER_AND_CONTROLLER,
    is_forwarded=True,
    needs=Asks.HANDLER,
    first=first_hop(_refused),
)
