"""AlterConfigs, versions 0-2: each resource gets exactly the values given, and loses its others.

One result for each resource; a resource that is listed twice in one request is refused, both times. v2 flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ottla.broker.handlers.config_changes import Alteration, alter_each, refused_first
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.controller.configs import replace_configs
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse


async def handle(parts: Parts, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    results = alter_each(parts, context, request.resources, partial(_alteration, parts), validate_only=request.validate_only)
    return AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) async for result in results])


def _alteration(parts: Parts, resource: AlterConfigsResource) -> Alteration | KafkaError:
    values = {entry.name: entry.value for entry in resource.configs}
    if len(values) != len(resource.configs):
        return KafkaError(ErrorCode.INVALID_REQUEST, "a config is listed twice in the request")
    return partial(replace_configs, resource_type=resource.resource_type, name=resource.resource_name, values=values, config=parts.config)


async def look(parts: Parts, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse | None:
    def wanted(resource: AlterConfigsResource) -> tuple[Mapping[str, str | None], Mapping[str, str]]:
        values = {entry.name: entry.value for entry in resource.configs if entry.value is not None}
        before = parts.image.broker_configs(resource.resource_name)
        return values | dict.fromkeys(before.keys() - values.keys()), values

    refused = await refused_first(parts, context, request.resources, wanted)
    return None if refused is None else AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) for result in refused])


SERVICE = service(AlterConfigsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Asks.HANDLER, first=look)
