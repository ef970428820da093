"""DescribeProducers, version 0: the producers that a partition remembers, one result for each partition (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.types import topic_name_problem

if TYPE_CHECKING:
    from ottla.broker.parts import Parts
    from ottla.broker.replicas.partition import Partition


async def handle(parts: Parts, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topics = []
    slices = Slices(parts.world.clock)
    async for topic in slices.over(request.topics):
        partitions = parts.partitions.by_name.get(topic.name, {})
        missing = ErrorCode.INVALID_TOPIC_EXCEPTION if topic_name_problem(topic.name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results = []
        async for index in slices.over(topic.partition_indexes):
            partition = partitions.get(index)
            results.append(PartitionResponse(index, missing) if partition is None else _described(partition))
        topics.append(TopicResponse(topic.name, results))
    return DescribeProducersResponse(topics=topics)


def _described(partition: Partition) -> PartitionResponse:
    producers = [
        ProducerState(
            producer_id,
            state.epoch,
            state.batches[-1][1] if state.batches else -1,
            state.last_used_ms,
            state.coordinator_epoch,
            state.transaction_first_offset,
        )
        for producer_id, state in sorted(partition.log.producers.states.items())
    ]
    return PartitionResponse(partition.index, active_producers=producers)


SERVICE = service(DescribeProducersRequest, handle)
