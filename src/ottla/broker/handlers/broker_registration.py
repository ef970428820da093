"""BrokerRegistration, versions 0-4, on the controllers' listener (KIP-631, 858, 966): NOT_CONTROLLER unless this one is active."""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.messages.acl_codes import Operation
from ottla.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


async def handle(parts: Parts, context: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    return await parts.membership.register(request, context.connection.transport)


SERVICE = service(BrokerRegistrationRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)
