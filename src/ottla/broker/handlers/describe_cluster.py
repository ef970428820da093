"""DescribeCluster, versions 0-2: the brokers and the controller (KIP-700). v1 knows endpoint types, v2 fenced brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from ottla.errors import ErrorCode
from ottla.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from ottla.broker.node import Broker

ENDPOINT_BROKERS = 1


def handle(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != ENDPOINT_BROKERS:
        text = f"endpoint type {request.endpoint_type} on a listener for brokers (type {ENDPOINT_BROKERS})"
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=text)
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(*endpoint) for endpoint in broker.endpoints_for(context.connection.listener)],
        cluster_authorized_operations=operations,
    )
