"""IncrementalAlterConfigs, versions 0-1: SET, DELETE, APPEND and SUBTRACT single values (KIP-339, trap T21).

One result for each resource; a resource that stands twice in one request is refused, both times. v1 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.altering import alter_each
from ottla.broker.context import RequestContext
from ottla.controller.configs import ConfigChange, Operation, change_configs
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.altering import Alteration
    from ottla.broker.node import Broker


async def handle(broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    wanted = [(resource.resource_type, resource.resource_name, _alteration(broker, resource)) for resource in request.resources]
    results = await alter_each(broker, wanted, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) for result in results])


def _alteration(broker: Broker, resource: AlterConfigsResource) -> Alteration | KafkaError:
    try:
        changes = [ConfigChange(entry.name, Operation(entry.config_operation), entry.value) for entry in resource.configs]
    except ValueError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    return partial(change_configs, resource_type=resource.resource_type, name=resource.resource_name, changes=changes, config=broker.config)
