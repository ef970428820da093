"""DescribeProducers, version 0: the producers that a partition remembers, one result for each partition (KIP-664).

Any replica answers, not the leader alone. To those who may describe the cluster the text of KAFKA_STORAGE_ERROR says why the replica is
offline. A partition may remember very many producers: one that is listed again has no second result.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.replicas.access import absent, why_offline
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.types import NO_EPOCH, topic_name_problem


async def handle(parts: Parts, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topics = []
    described: set[tuple[str, int]] = set()
    slices = Slices(parts.world.clock)
    async for topic in slices.over(request.topics):
        missing = ErrorCode.INVALID_TOPIC_EXCEPTION if topic_name_problem(topic.name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results = []
        async for index in slices.over(topic.partition_indexes):
            if (topic.name, index) in described:
                continue
            described.add((topic.name, index))
            try:
                if not context.may(Operation.READ, ResourceType.TOPIC, topic.name):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = parts.partitions.find(topic.name, index)
                if partition is None:
                    raise absent(parts.partitions, parts.image, topic.name, index, missing)
                partition.check_epoch(NO_EPOCH)
                results.append(await _described(slices, partition))
            except KafkaError as error:
                text = _offline(parts, context, topic.name, index) if error.code == ErrorCode.KAFKA_STORAGE_ERROR else None
                results.append(PartitionResponse(index, error.code, text or error.message or None))
        topics.append(TopicResponse(topic.name, results))
    return DescribeProducersResponse(topics=topics)


def _offline(parts: Parts, context: RequestContext, topic: str, index: int) -> str | None:
    """Returns why the replica is offline; None where that is not known, or not for the caller: it names files."""
    why = why_offline(parts.partitions, topic, index)
    may_see = why and context.may_quietly(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
    return f"{topic}-{index} is offline: {why}" if may_see else None


async def _described(slices: Slices, partition: Partition) -> PartitionResponse:
    """Describes the producers that are known now; one that is forgotten meanwhile is described as it was."""
    producers = []
    async for producer_id, state in slices.over(sorted(partition.log.producers.states.items())):
        sequence = state.batches[-1][1] if state.batches else -1
        producers.append(
            ProducerState(producer_id, state.epoch, sequence, state.last_used_ms, state.coordinator_epoch, state.transaction_first_offset)
        )
    return PartitionResponse(partition.index, active_producers=producers)


SERVICE = service(DescribeProducersRequest, handle, needs=Asks.HANDLER)
