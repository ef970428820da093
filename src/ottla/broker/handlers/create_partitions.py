"""CreatePartitions, versions 0-3: one result for each topic.  v2 flexible.

A topic that is listed twice in one request is refused, both times; assignments name the replicas of the new partitions only.
More than 10,000 new partitions in one request are refused entirely, POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ottla.broker.handlers.repeated_names import count_names, refused_as_repeated
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.broker.tasks.slices import Slices, drained
from ottla.controller.decided import Recorded
from ottla.controller.operation_size import too_many_records, too_much_growth
from ottla.controller.partitions import create_partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.metadata.image import ClusterImage

QUOTA_ERROR_SINCE = 3


async def handle(parts: Parts, context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    slices = Slices(parts.world.clock)
    counts = await count_names(slices, (topic.name for topic in request.topics))
    results = {name: CreatePartitionsTopicResult(name) async for name in slices.over(counts)}
    wanted: list[CreatePartitionsTopic] = []
    async for topic in slices.over(request.topics):
        if not context.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
            results[topic.name] = CreatePartitionsTopicResult(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        elif repeated := refused_as_repeated("topic", topic.name, counts[topic.name]):
            results[topic.name] = CreatePartitionsTopicResult(topic.name, repeated.code, repeated.message)
        else:
            wanted.append(topic)
    budget = parts.throttling.mutations(context, is_strict=context.version >= QUOTA_ERROR_SINCE)
    decisions: Iterator[Callable[[ClusterImage], Recorded]] = (_decision(parts, topic) for topic in wanted)
    if not request.validate_only:
        decisions = map(budget.limit, decisions)
    excess = too_many_records(len(wanted)) or too_much_growth(parts.image, ((topic.name, topic.count) for topic in wanted))
    outcomes = await parts.controller.decide(decisions, validate_only=request.validate_only, refused=excess)
    async for topic, outcome in slices.over(zip(wanted, drained(outcomes), strict=True)):
        if isinstance(outcome, KafkaError):
            results[topic.name] = CreatePartitionsTopicResult(topic.name, outcome.code, outcome.message or None)
    return CreatePartitionsResponse(budget.pause_ms, list(results.values()))


def _decision(parts: Parts, topic: CreatePartitionsTopic) -> Callable[[ClusterImage], Recorded]:
    start, shift = parts.controller.random_place()
    rows = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    return partial(
        create_partitions,
        name=topic.name,
        count=topic.count,
        assignments=rows,
        start=start,
        shift=shift,
        absent=parts.home.metadata.absent,
    )


SERVICE = service(CreatePartitionsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Asks.HANDLER)
