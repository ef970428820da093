"""UnregisterBroker, version 0: a broker that will not return is no longer of the cluster (KIP-500).

BROKER_ID_NOT_REGISTERED for an unknown id; INVALID_REQUEST for a broker that serves: it would only register again.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(parts: Parts, context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    [result] = await parts.membership.unregister(request.broker_id)
    if isinstance(result, KafkaError):
        return UnregisterBrokerResponse(error_code=result.code, error_message=result.message)
    return UnregisterBrokerResponse(error_message=None)


SERVICE = service(UnregisterBrokerRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Operation.ALTER)
