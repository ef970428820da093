"""What the four APIs of delegation tokens share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.listener_security import Protocol
from ottla.controller.decided import Recorded
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage
from ottla.security.principal import ANONYMOUS, Principal
from ottla.security.tokens import TokenKeys
from ottla.wire.schema import Response

LIFETIME: Final = "delegation.token.max.lifetime.ms"
RENEWAL: Final = "delegation.token.expiry.time.ms"
_Change: TypeAlias = Callable[[ClusterImage, str | None, str], Recorded]
"""Of an image, a token's id (None: no token has that HMAC) and who asks."""


def first_hop(refused: Callable[[Any, RequestContext, ErrorCode], Response]) -> Any:
    """Returns a ``service.First`` that checks that the caller has authenticated without a token. Only its first node knows that."""

    async def look(parts: Parts, context: RequestContext, request: Any) -> Response | None:
        protocol = parts.gate.threshold.protocol_of(context.connection.listener)
        is_anonymous = protocol is Protocol.PLAINTEXT or (protocol is Protocol.SSL and context.principal == ANONYMOUS)
        if is_anonymous or context.principal.by_token:
            return refused(request, context, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        return None

    return look


def keys_of(parts: Parts, context: RequestContext) -> TokenKeys:
    """Returns the keys. DELEGATION_TOKEN_AUTH_DISABLED without a secret; DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a token's session."""
    if context.principal.by_token:  # also where another node has passed the request on without a look
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    keys = parts.gate.threshold.token_keys
    if not keys.is_enabled:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return keys


async def decided(parts: Parts, decision: Callable[[ClusterImage], Recorded]) -> Recorded:
    """Returns what was recorded. KafkaError when it was refused."""
    [outcome] = await parts.controller.decide([decision])
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


async def changed(parts: Parts, context: RequestContext, hmac: bytes, change: _Change) -> object:
    """Returns the one record of that change of the token with that HMAC. KafkaError when it was refused."""
    keys, asker = keys_of(parts, context), str(Principal(context.principal.kind, context.principal.name))
    [record] = (await decided(parts, lambda image: change(image, keys.find(image.delegation_tokens, hmac), asker))).records
    return record


def shorter(wanted_ms: int, configured_ms: int) -> int:
    """Returns what a request asks for, if it asks for something, and not more than the configuration allows."""
    return min(wanted_ms, configured_ms) if wanted_ms > 0 else configured_ms
