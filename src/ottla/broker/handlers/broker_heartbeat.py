"""BrokerHeartbeat, versions 0-2, on the controllers' listener (KIP-631): NOT_CONTROLLER unless this one is active.

BROKER_ID_NOT_REGISTERED and STALE_BROKER_EPOCH make a broker register again. Cordoned log directories are not looked at.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.messages.acl_codes import Operation
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


async def handle(parts: Parts, context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    return await parts.membership.heartbeat(request, context.connection.transport)


SERVICE = service(BrokerHeartbeatRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)
