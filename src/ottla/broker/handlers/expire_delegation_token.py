"""ExpireDelegationToken, versions 1-2: a token is good for less long, or removed, for its owner and its renewers (KIP-48).  v2 flexible.

Sessions that it has begun end with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers.token_requests import decided, first_hop, keys_of
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.controller.decided import Recorded
from ottla.controller.delegation_tokens import expire_token
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.metadata.image import ClusterImage
from ottla.security.principal import Principal

if TYPE_CHECKING:
    from ottla.broker.parts import Parts


async def handle(parts: Parts, context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    try:
        keys, asker = keys_of(parts, context), str(Principal(context.principal.kind, context.principal.name))

        def decision(image: ClusterImage) -> Recorded:
            token_id = keys.find(image.delegation_tokens, bytes(request.hmac))
            return expire_token(
                image, token_id, asker, now_ms=parts.world.clock.now_ms(), left_ms=request.expiry_time_period_ms
            )  # fmt: skip

        [record] = (await decided(parts, decision)).records
    except KafkaError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            raise
        return _refused(request, context, error.code)
    expires_ms = record.expiration_timestamp if isinstance(record, DelegationTokenRecord) else request.expiry_time_period_ms
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
