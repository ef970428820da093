"""RenewDelegationToken, versions 1-2: a token is good for longer, for its owner and its renewers (KIP-48).  v2 flexible."""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.token_requests import RENEWAL, changed, first_hop, shorter
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.controller.delegation_tokens import renew_token
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle(parts: Parts, context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    try:
        change = partial(renew_token, now_ms=parts.world.clock.now_ms(), renew_ms=shorter(request.renew_period_ms, parts.config[RENEWAL]))
        record = await changed(parts, context, bytes(request.hmac), change)
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
