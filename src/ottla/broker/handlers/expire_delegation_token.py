"""ExpireDelegationToken, versions 1-2: a token is good for less long, or removed, for its owner and its renewers (KIP-48).  v2 flexible.

Sessions that it has opened end with it.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.token_requests import changed, first_hop
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.controller.delegation_tokens import expire_token
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.messages.metadata_records import DelegationTokenRecord


async def handle(parts: Parts, context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    now_ms = parts.world.clock.now_ms()
    try:
        change = partial(expire_token, now_ms=now_ms, left_ms=request.expiry_time_period_ms)
        record = await changed(parts, context, bytes(request.hmac), change)
    except KafkaError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            raise
        return _refused(request, context, error.code)
    expires_ms = record.expiration_timestamp if isinstance(record, DelegationTokenRecord) else now_ms
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)


def _refused(request: ExpireDelegationTokenRequest, context: RequestContext, code: int) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


SERVICE = service(
    ExpireDelegationTokenRequest,
    handle,
    roles=BROKER_AND_CONTROLLER,
    is_forwarded=True,
    needs=Asks.HANDLER,
    first=first_hop(_refused),
)
