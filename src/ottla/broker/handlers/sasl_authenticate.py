"""SaslAuthenticate, versions 0-2, without a SaslHandshake before it: ILLEGAL_SASL_STATE.  v2 flexible.

After one it is answered on the threshold (``requests/threshold.py``).
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.errors import ErrorCode
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(parts: Parts, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    text = "SaslAuthenticate needs a SaslHandshake before it"
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)


SERVICE = service(SaslAuthenticateRequest, handle, roles=BROKER_AND_CONTROLLER, needs=Asks.NOBODY)
