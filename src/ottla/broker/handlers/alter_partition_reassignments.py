"""AlterPartitionReassignments, versions 0-1: one result for each partition (KIP-455).

Null replicas cancel a move: NO_REASSIGNMENT_IN_PROGRESS where there is none. v1 may forbid a change of the replication factor (KIP-860).
More than 10,000 partitions in one request are refused entirely, POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices, drained
from ottla.controller.decided import Recorded
from ottla.controller.operation_size import too_many_records
from ottla.controller.reassignment import reassign
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.metadata.image import ClusterImage


async def handle(parts: Parts, context: RequestContext, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    keeps_factor = not request.allow_replication_factor_change
    slices = Slices(parts.world.clock)
    decisions = (
        _move(parts, topic.name, wanted.partition_index, wanted.replicas, keeps_factor)
        for topic in request.topics
        for wanted in topic.partitions
    )
    count = sum([len(topic.partitions) async for topic in slices.over(request.topics)])
    excess = too_many_records(count)
    outcomes = drained(await parts.controller.decide(decisions, refused=excess))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    async for topic in slices.over(request.topics):
        partitions = []
        async for wanted in slices.over(topic.partitions):
            outcome = next(outcomes)
            result = ReassignablePartitionResponse(wanted.partition_index, error_message=None)
            if isinstance(outcome, KafkaError):
                result.error_code, result.error_message = outcome.code, outcome.message
            partitions.append(result)
        response.responses.append(ReassignableTopicResponse(topic.name, partitions))
    return response


def _move(parts: Parts, topic: str, index: int, replicas: list[int] | None, keeps_factor: bool) -> Callable[[ClusterImage], Recorded]:
    rules = parts.controller.rules
    return lambda image: reassign(image, topic, index, replicas, keeps_factor=keeps_factor, rules=rules(image))


SERVICE = service(AlterPartitionReassignmentsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Operation.ALTER)
