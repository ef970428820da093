"""WriteTxnMarkers, versions 1-2: a transaction coordinator has the ends of transactions written into the partitions led here.

v2 says which transaction.version the transaction has (KIP-1228). ClusterAction is needed, or Alter on the cluster: administrators end a
transaction that hangs (KIP-664).
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.machine import Marker
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.types import TopicPartition


async def handle(parts: Parts, context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    slices, response = Slices(parts.world.clock), WriteTxnMarkersResponse()
    due: list[tuple[Marker, TopicPartition]] = []
    results: list[WritableTxnMarkerPartitionResult] = []  # of ``due``, in the same order
    async for wanted in slices.over(request.markers):
        marker = Marker(
            wanted.producer_id, wanted.producer_epoch, wanted.transaction_result, wanted.coordinator_epoch, wanted.transaction_version
        )
        result = WritableTxnMarkerResult(wanted.producer_id)
        response.markers.append(result)
        async for topic in slices.over(wanted.topics):
            answers = WritableTxnMarkerTopicResult(topic.name)
            result.topics.append(answers)
            async for index in slices.over(topic.partition_indexes):
                due.append((marker, TopicPartition(topic.name, index)))
                results.append(WritableTxnMarkerPartitionResult(index))
                answers.partitions.append(results[-1])
    codes = await _written(parts, context, due)
    async for answer, code in slices.over(zip(results, codes, strict=True)):
        answer.error_code = code
    return response


async def _written(parts: Parts, context: RequestContext, due: list[tuple[Marker, TopicPartition]]) -> list[int]:
    may_alter = context.may_quietly(Operation.ALTER, ResourceType.CLUSTER, CLUSTER)
    if not may_alter and not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER):
        return [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * len(due)
    context.is_of_node = True
    return await parts.end_markers.write(parts.image, due)


SERVICE = service(WriteTxnMarkersRequest, handle, needs=Asks.HANDLER)
