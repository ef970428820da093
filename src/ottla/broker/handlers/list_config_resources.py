"""ListConfigResources, versions 0-1: the names that have, or may have, a configuration (KIP-1142).

Version 0 asks for client-metrics subscriptions only. Without types in the request, all types are listed;
a broker has no loggers that could be configured.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation
from ottla.messages.list_config_resources import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterImage,
)

TYPES_SINCE = 1
KNOWN = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)


def handle(parts: Parts, context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted = (request.resource_types or KNOWN) if context.version >= TYPES_SINCE else (RESOURCE_CLIENT_METRICS,)
    if not set(wanted) <= set(KNOWN):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [ConfigResource(name, kind) for kind in KNOWN if kind in wanted for name in _names(parts.image, kind)]
    return ListConfigResourcesResponse(config_resources=found)


def _names(image: ClusterImage, resource_type: int) -> list[str]:
    if resource_type == RESOURCE_TOPIC:
        return sorted(image.topics)
    if resource_type in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(broker.broker_id) for broker in image.live_brokers]
    return sorted(name for kind, name in image.configs if kind == resource_type)


SERVICE = service(ListConfigResourcesRequest, handle, needs=Operation.DESCRIBE_CONFIGS)
