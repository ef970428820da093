"""ListPartitionReassignments, version 0: the moves that are under way (KIP-455); of all topics when none is listed."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices
from ottla.controller.reassignment import is_moving
from ottla.messages.acl_codes import Operation
from ottla.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.metadata.image import ClusterImage


async def handle(parts: Parts, context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    image, slices = parts.image, Slices(parts.world.clock)
    found: dict[str, OngoingTopicReassignment] = {}
    async for topic, index in slices.over(_asked(image, request)):
        known = image.topics.get(topic)
        partition = known.partitions.get(index) if known is not None else None
        if partition is not None and is_moving(partition):
            moving = OngoingPartitionReassignment(index, list(partition.replicas), list(partition.adding), list(partition.removing))
            found.setdefault(topic, OngoingTopicReassignment(topic)).partitions.append(moving)
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(found.values()))


def _asked(image: ClusterImage, request: ListPartitionReassignmentsRequest) -> Iterator[tuple[str, int]]:
    if request.topics is None:
        yield from ((name, index) for name, topic in sorted(image.topics.items()) for index in sorted(topic.partitions))
    else:
        yield from ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)


SERVICE = service(ListPartitionReassignmentsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Operation.DESCRIBE)
