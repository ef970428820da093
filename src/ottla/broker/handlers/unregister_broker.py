"""UnregisterBroker, version 0: BROKER_ID_NOT_REGISTERED for every id but this broker's own, which stays while it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.errors import ErrorCode
from ottla.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.broker.parts import Parts


def handle(parts: Parts, context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    if request.broker_id not in parts.image.brokers:
        text = f"Broker ID {request.broker_id} is not currently registered"
        return UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=text)
    text = f"broker {request.broker_id} is running; stop it before you unregister it"
    return UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)


SERVICE = service(UnregisterBrokerRequest, handle, roles=BROKER_AND_CONTROLLER)
