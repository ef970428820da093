"""AlterConfigs, versions 0-2: each resource gets exactly the values given, and loses its others (trap T21).

One result for each resource; a resource that stands twice in one request is refused, both times. v2 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.altering import CONFIGS_MAX, alter_each, too_many_configs
from ottla.broker.context import RequestContext
from ottla.broker.slices import Slices
from ottla.controller.configs import replace_configs
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.broker.altering import Alteration
    from ottla.broker.node import Broker


async def handle(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    slices = Slices(broker.world.clock)
    wanted = [
        (resource.resource_type, resource.resource_name, _alteration(broker, resource)) async for resource in slices.over(request.resources)
    ]
    results = alter_each(broker, wanted, slices, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) async for result in results])


def _alteration(broker: Broker, resource: AlterConfigsResource) -> Alteration | KafkaError:
    if len(resource.configs) > CONFIGS_MAX:
        return too_many_configs(len(resource.configs))
    values = {entry.name: entry.value for entry in resource.configs}
    if len(values) != len(resource.configs):
        return KafkaError(ErrorCode.INVALID_REQUEST, "a config stands twice in the request")
    return partial(replace_configs, resource_type=resource.resource_type, name=resource.resource_name, values=values, config=broker.config)
