"""DescribeConfigs, versions 1-4: every value with source, synonyms, type and documentation.

Topics (type 2), this broker (4; the empty name asks for what is set for all brokers), client-metrics subscriptions (16) and
groups (32), and the levels of this broker's loggers (8).
"""

from __future__ import annotations

from ottla.broker.handlers.config_changes import check_right
from ottla.broker.handlers.config_entries import (
    broker_config_entries,
    client_metrics_config_entries,
    default_config_entries,
    group_config_entries,
    logger_config_entries,
    topic_config_entries,
)
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.config import ConfigSource
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC
from ottla.types import topic_name_problem


async def handle(parts: Parts, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describes resources. One that is listed many times is answered once: else a short request would have an answer of gigabytes."""
    described: dict[tuple[int, str, frozenset[str] | None], DescribeConfigsResult] = {}
    async for resource in Slices(parts.world.clock).over(request.resources):
        keys = frozenset(resource.configuration_keys) if resource.configuration_keys else None  # none asks for all, as with Kafka
        wanted = (resource.resource_type, resource.resource_name, keys)
        if wanted not in described:
            described[wanted] = _describe(parts, context, resource, keys, request)
    return DescribeConfigsResponse(results=list(described.values()))


def _describe(
    parts: Parts,
    context: RequestContext,
    resource: DescribeConfigsResource,
    keys: frozenset[str] | None,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        check_right(context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        result.configs = [_as_asked(entry, request) for entry in _entries(parts, resource) if keys is None or entry.name in keys]
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or None
    return result


def _entries(parts: Parts, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    if resource.resource_type == RESOURCE_TOPIC:
        if topic_name_problem(name) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:80]!r}: {topic_name_problem(name)}")
        if name not in parts.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        return list(topic_config_entries(parts.config, parts.image.topic_configs(name)))
    if resource.resource_type == RESOURCE_BROKER:
        if not name:
            return list(default_config_entries(parts.image.broker_configs("")))
        if name != str(parts.node_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {parts.node_id}, not {name[:80]!r}")
        own, default = parts.image.broker_configs(name), parts.image.broker_configs("")
        return list(broker_config_entries(parts.config, {ConfigSource.DYNAMIC_BROKER: own, ConfigSource.DYNAMIC_DEFAULT_BROKER: default}))
    if resource.resource_type == RESOURCE_BROKER_LOGGER:
        if name != str(parts.node_id):
            what = "a broker's id must not be empty" if not name else f"this is broker {parts.node_id}, not {name[:80]!r}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, what)
        return list(logger_config_entries())
    if resource.resource_type in (RESOURCE_GROUP, RESOURCE_CLIENT_METRICS):
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a group or subscription must not be empty")
        values = parts.image.configs.get((resource.resource_type, name), {})
        entries = group_config_entries if resource.resource_type == RESOURCE_GROUP else client_metrics_config_entries
        return list(entries(parts.config, values))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is not served")


def _as_asked(entry: DescribeConfigsResourceResult, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    if not request.include_synonyms:
        entry.synonyms = []
    if not request.include_documentation and entry.documentation:
        entry.documentation = None
    return entry


SERVICE = service(DescribeConfigsRequest, handle, roles=BROKER_AND_CONTROLLER, needs=Asks.HANDLER)
