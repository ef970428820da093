"""AlterConfigs, versions 0-2: each resource gets exactly the values given, and loses its others (trap T21).

One result for each resource; a resource that stands twice in one request is refused, both times. v2 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.altering import alter_each
from ottla.broker.context import RequestContext
from ottla.controller.configs import replace_configs
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.broker.altering import Alteration
    from ottla.broker.node import Broker


async def handle(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    results = alter_each(broker, request.resources, partial(_alteration, broker), validate_only=request.validate_only)
    return AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) async for result in results])


def _alteration(broker: Broker, resource: AlterConfigsResource) -> Alteration | KafkaError:
    values = {entry.name: entry.value for entry in resource.configs}
    if len(values) != len(resource.configs):
        return KafkaError(ErrorCode.INVALID_REQUEST, "a config stands twice in the request")
    return partial(replace_configs, resource_type=resource.resource_type, name=resource.resource_name, values=values, config=broker.config)
