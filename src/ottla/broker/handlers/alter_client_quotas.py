"""AlterClientQuotas, versions 0-1: quotas are set and removed, one result for each entity (KIP-546).  v1 flexible."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.controller.quotas import alter_quotas
from ottla.errors import KafkaError
from ottla.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, EntryResult

if TYPE_CHECKING:
    from ottla.broker.node import Broker


async def handle(broker: Broker, context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    decisions = [
        partial(
            alter_quotas,
            entity=[(part.entity_type, part.entity_name) for part in entry.entity],
            changes=[(change.key, None if change.remove else change.value) for change in entry.ops],
        )
        for entry in request.entries
    ]
    outcomes = await broker.controller.decide(decisions, validate_only=request.validate_only)
    results = []
    for entry, outcome in zip(request.entries, outcomes, strict=True):
        result = EntryResult(error_message=None, entity=entry.entity)
        if isinstance(outcome, KafkaError):
            result.error_code, result.error_message = outcome.code, outcome.message
        results.append(result)
    return AlterClientQuotasResponse(entries=results)
