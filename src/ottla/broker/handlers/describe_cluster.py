"""DescribeCluster, versions 0-2: the brokers and the controller (KIP-700). v1 knows endpoint types; v2 lists fenced brokers, too, when
asked (KIP-1073). On the controller's listener the nodes are the controllers (KIP-919). In ZooKeeper mode the controller is -1 while none is
known; Metadata names a broker then, which passes on what it is asked.
"""

from __future__ import annotations

from ottla.broker.authorization import NOT_ASKED
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.broker.roles import Role
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS = 1, 2


def handle(parts: Parts, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    listener = context.connection.listener
    is_controller = context.connection.role is Role.CONTROLLER
    if is_controller and not context.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER):
        return DescribeClusterResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    served = ENDPOINT_CONTROLLERS if is_controller else ENDPOINT_BROKERS
    if request.endpoint_type != served:
        text = f"endpoint type {request.endpoint_type} on a listener for type {served} (1: brokers, 2: controllers)"
        is_known = request.endpoint_type in (ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS)
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message=text)
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        may_ask = context.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
        operations = context.allowed(ResourceType.CLUSTER, CLUSTER) if may_ask else 0
    return DescribeClusterResponse(
        endpoint_type=served,
        cluster_id=parts.cluster_id,
        controller_id=-1 if parts.home.knows_no_controller else parts.controller_id,
        brokers=_controllers(parts, listener) if is_controller else _brokers(parts, listener, request.include_fenced_brokers),
        cluster_authorized_operations=operations,
    )


def _brokers(parts: Parts, listener: str, include_fenced: bool) -> list[DescribeClusterBroker]:
    found = []
    for broker_id, broker in sorted(parts.image.brokers.items()):
        end = broker.endpoints.get(listener)
        if end is not None and (include_fenced or not broker.is_fenced):
            found.append(DescribeClusterBroker(broker_id, end.host, end.port, broker.rack, broker.is_fenced))
    return found


def _controllers(parts: Parts, listener: str) -> list[DescribeClusterBroker]:
    """Returns the registered controllers, and this one."""
    ends = {controller_id: controller.endpoints.get(listener) for controller_id, controller in parts.image.controllers.items()}
    own = next((end for end in parts.controller_endpoints if end.listener == listener), None)
    ends[parts.node_id] = own
    return [DescribeClusterBroker(node_id, end.host, end.port) for node_id, end in sorted(ends.items()) if end is not None]


SERVICE = service(DescribeClusterRequest, handle, roles=BROKER_AND_CONTROLLER, needs=Asks.HANDLER)
