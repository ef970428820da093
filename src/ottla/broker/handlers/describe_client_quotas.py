"""DescribeClientQuotas, versions 0-1: the quotas whose entity fits the filter (KIP-546).  v1 flexible."""

from __future__ import annotations

from typing import Final

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.controller.quotas import find_quotas
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

COMPONENTS_MAX: Final = 100
"""Of one filter; more cannot differ."""


def handle(parts: Parts, context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if len(request.components) > COMPONENTS_MAX:
        text = f"a filter of {len(request.components)} components: an entity type is listed more than once"
        return DescribeClientQuotasResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text, entries=None)
    components = [(component.entity_type, component.match_type, component.match) for component in request.components]
    try:
        found = list(find_quotas(parts.image, components, is_strict=request.strict))
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        EntryData([EntityData(kind, name) for kind, name in entity], [ValueData(key, value) for key, value in sorted(values.items())])
        for entity, values in found
    ]
    return DescribeClientQuotasResponse(entries=entries)


SERVICE = service(DescribeClientQuotasRequest, handle, needs=Operation.DESCRIBE_CONFIGS)
