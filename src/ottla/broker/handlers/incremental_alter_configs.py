"""IncrementalAlterConfigs, versions 0-1: SET, DELETE, APPEND and SUBTRACT single values (KIP-339).

One result for each resource; a resource that is listed twice in one request is refused, both times. Levels of loggers (type 8) are
this process's, and change at once: a request for nothing else is not passed on, and needs no controller. v1 flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ottla.broker.handlers.config_changes import Alteration, alter_each, alter_here, refused_first
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, Asks, service
from ottla.controller.configs import ConfigChange, Operation, change_configs
from ottla.controller.decided import Recorded
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import LEVELS, ROOT, names, set_levels
from ottla.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.metadata.image import RESOURCE_BROKER_LOGGER, ClusterImage


async def handle(parts: Parts, context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    alteration = partial(_alteration, parts, validate_only=request.validate_only)
    results = alter_each(parts, context, request.resources, alteration, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) async for result in results])


def _alteration(parts: Parts, resource: AlterConfigsResource, *, validate_only: bool) -> Alteration | KafkaError:
    try:
        changes = [ConfigChange(entry.name, Operation(entry.config_operation), entry.value) for entry in resource.configs]
    except ValueError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    if resource.resource_type == RESOURCE_BROKER_LOGGER:
        return partial(_change_loggers, node_id=parts.node_id, name=resource.resource_name, changes=changes, validate_only=validate_only)
    return partial(change_configs, resource_type=resource.resource_type, name=resource.resource_name, changes=changes, config=parts.config)


def _change_loggers(_: ClusterImage, *, node_id: int, name: str, changes: list[ConfigChange], validate_only: bool) -> Recorded:
    if name != str(node_id):
        what = f"this is node {node_id}, not {name[:80]}" if name.isdecimal() else f"node id must be an integer, but it is: {name[:80]}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    known = names()
    for change in changes:
        if change.operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.operation.name} is not allowed for levels of loggers")
        if change.name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"logger {change.name[:200]} does not exist")
        if change.operation is Operation.SET and change.value not in LEVELS:
            text = f"the level of {change.name} cannot be {(change.value or '')[:80]}; {', '.join(sorted(LEVELS))} are levels"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        if change.operation is Operation.DELETE and change.name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be removed")
    if not validate_only:
        set_levels((change.name, change.value if change.operation is Operation.SET else None) for change in changes)
    return Recorded(())


async def look(parts: Parts, context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse | None:
    if request.resources and all(resource.resource_type == RESOURCE_BROKER_LOGGER for resource in request.resources):
        alteration = partial(_alteration, parts, validate_only=request.validate_only)
        results = alter_here(parts, context, request.resources, alteration)
        return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) async for result in results])

    def wanted(resource: AlterConfigsResource) -> tuple[Mapping[str, str | None], Mapping[str, str]]:
        changed = {entry.name: entry.value if entry.config_operation == Operation.SET else None for entry in resource.configs}
        values = {**parts.image.broker_configs(resource.resource_name), **changed}
        return changed, {name: value for name, value in values.items() if value is not None}

    refused = await refused_first(parts, context, request.resources, wanted)
    if refused is None:
        return None
    return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(*result) for result in refused])


SERVICE = service(
    IncrementalAlterConfigsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Asks.HANDLER, first=look
)  # fmt: skip
