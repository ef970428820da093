"""CreateTopics, versions 2-7: one result for each topic, in order.

-1 partitions or replication factor mean the broker's default. v5 answers with the counts and configs, v7 with the id. A
name that is listed twice in one request is refused, both times; a request for too much is refused entirely, POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.handlers.config_changes import CONFIGS_MAX, too_many_configs
from ottla.broker.handlers.config_entries import topic_config_entries
from ottla.broker.handlers.repeated_names import count_names, refused_as_repeated
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.broker.tasks.slices import Slices, drained
from ottla.controller.operation_size import too_many_topics
from ottla.controller.topics import NewTopic, TopicCreation
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.metadata.image import ClusterImage
from ottla.wire.compiler import encode_part

QUOTA_ERROR_SINCE = 6


async def handle(parts: Parts, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    slices = Slices(parts.world.clock)
    counts = await count_names(slices, (topic.name for topic in request.topics))
    results: dict[str, Any] = {}  # of topics that were made as bytes, slice by slice
    wanted: list[NewTopic] = []
    may_create_all = context.may_quietly(Operation.CREATE, ResourceType.CLUSTER, CLUSTER)
    async for topic in slices.over(request.topics):
        problem = _problem(topic, counts[topic.name])
        if not may_create_all and not context.may(Operation.CREATE, ResourceType.TOPIC, topic.name):
            problem = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        if problem is not None:
            results[topic.name] = _refused(topic.name, problem)
        else:
            wanted.append(_new_topic(topic))
    budget = parts.throttling.mutations(context, is_strict=context.version >= QUOTA_ERROR_SINCE)
    decisions: Iterator[Callable[[ClusterImage], TopicCreation]] = map(parts.controller.creation, wanted)
    if not request.validate_only:
        decisions = map(budget.limit, decisions)
    excess = too_many_topics(wanted, partitions_default=parts.config["num.partitions"])
    created = await parts.controller.decide(decisions, validate_only=request.validate_only, refused=excess)
    encoded: dict[tuple[tuple[str, str], ...], list[Any]] = {}  # the configuration entries by what they override: few differ
    async for new, result in slices.over(zip(wanted, drained(created), strict=True)):
        if isinstance(result, KafkaError):
            results[new.name] = _refused(new.name, result)
            continue
        if not context.may_quietly(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, new.name):
            results[new.name] = _undescribed(result)
            continue
        overrides = tuple(result.configs.items())
        if overrides not in encoded:
            encoded[overrides] = [encode_part(entry, CreateTopicsResponse, context.version) for entry in _entries(parts, result)]
        results[new.name] = encode_part(_accepted(result, encoded[overrides]), CreateTopicsResponse, context.version)
    return CreateTopicsResponse(budget.pause_ms, list(results.values()))


def _problem(topic: CreatableTopic, count: int) -> KafkaError | None:
    if repeated := refused_as_repeated("topic", topic.name, count):
        return repeated
    indexes = [assignment.partition_index for assignment in topic.assignments]
    if len(set(indexes)) != len(indexes):
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {topic.name!r}: a partition is assigned twice")
    if len(topic.configs) > CONFIGS_MAX:
        return too_many_configs(len(topic.configs))
    return None


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=error.code, error_message=error.message or None)


def _entries(parts: Parts, creation: TopicCreation) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.config_source, entry.is_sensitive)
        for entry in topic_config_entries(parts.config, creation.configs)
    ]


def _accepted(creation: TopicCreation, configs: list[Any]) -> CreatableTopicResult:
    return CreatableTopicResult(
        creation.name,
        creation.topic_id,
        error_message=None,
        num_partitions=creation.partition_count,
        replication_factor=creation.replication_factor,
        configs=configs,
    )


def _undescribed(creation: TopicCreation) -> CreatableTopicResult:
    """Returns the result for a client that may make the topic, and may not see its configuration."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return CreatableTopicResult(creation.name, creation.topic_id, error_message=None, topic_config_error_code=code)


SERVICE = service(CreateTopicsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Asks.HANDLER)
