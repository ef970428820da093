"""DescribeCluster, versions 0-2: the brokers and the controller (KIP-700). v1 knows endpoint types, v2 fenced brokers.

On the controller's listener the nodes are the controllers (KIP-919).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from ottla.errors import ErrorCode
from ottla.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from ottla.broker.node import Broker

ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS = 1, 2


def handle(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    listener = context.connection.listener
    is_controller = broker.is_controller_listener(listener)
    served = ENDPOINT_CONTROLLERS if is_controller else ENDPOINT_BROKERS
    if request.endpoint_type != served:
        text = f"endpoint type {request.endpoint_type} on a listener for type {served} (1: brokers, 2: controllers)"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=text)
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
    return DescribeClusterResponse(
        endpoint_type=served,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=_controllers(broker, listener)
        if is_controller
        else [DescribeClusterBroker(*end) for end in broker.endpoints_for(listener)],
        cluster_authorized_operations=operations,
    )


def _brokers(broker: Broker, listener: str) -> list[DescribeClusterBroker]:
    return [DescribeClusterBroker(*endpoint) for endpoint in broker.endpoints_for(listener)]


def _controllers(broker: Broker, listener: str) -> list[DescribeClusterBroker]:
    return [DescribeClusterBroker(broker.node_id, end.host, end.port) for end in broker.controller_endpoints if end.listener == listener]
