"""SaslHandshake, versions 0-1, of who has authenticated: the session starts to authenticate again (KIP-368), else ILLEGAL_SASL_STATE.

Before that it is answered on the threshold (``requests/threshold.py``).
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(parts: Parts, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
    return parts.gate.threshold.handshake_again(context, request)


SERVICE = service(SaslHandshakeRequest, handle, roles=BROKER_AND_CONTROLLER, needs=Asks.NOBODY)
