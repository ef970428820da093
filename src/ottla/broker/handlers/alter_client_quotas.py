"""AlterClientQuotas, versions 0-1: quotas are set and removed, one result for each entity (KIP-546).  v1 flexible."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices, drained
from ottla.controller.decided import Recorded
from ottla.controller.operation_size import too_many_records
from ottla.controller.quotas import alter_quotas
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, EntryData, EntryResult
from ottla.metadata.image import ClusterImage

PARTS_MAX: Final = 100
"""Parts of one entity and changes of its quotas: more cannot differ, and are refused entirely."""


async def handle(parts: Parts, context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Changes quotas. An entity that is listed again is ignored, and its one result says so."""
    first: dict[tuple[tuple[str, str | None], ...], EntryData] = {}
    repeated = set()
    results = []
    slices = Slices(parts.world.clock)
    async for entry in slices.over(request.entries):
        if max(len(entry.entity), len(entry.ops)) > PARTS_MAX:
            text = f"an entity of {len(entry.entity)} parts, with {len(entry.ops)} changes: something is listed more than once"
            results.append(EntryResult(ErrorCode.INVALID_REQUEST, text, entry.entity))
            continue
        entity = tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=lambda pair: (pair[0], pair[1] or "")))
        if first.setdefault(entity, entry) is not entry:
            repeated.add(entity)
    excess = too_many_records(sum([len(entry.ops) async for entry in slices.over(first.values())]))
    decisions = map(_decision, first.values())
    outcomes = await parts.controller.decide(decisions, validate_only=request.validate_only, refused=excess)
    async for (entity, entry), outcome in slices.over(zip(first.items(), drained(outcomes), strict=True)):
        result = EntryResult(error_message=None, entity=sorted(entry.entity, key=lambda part: part.entity_type))  # Kafka's order
        if entity in repeated:
            result.error_code, result.error_message = (
                ErrorCode.INVALID_REQUEST,
                "the entity is listed more than once; the first entry counts",
            )
        elif isinstance(outcome, KafkaError):
            result.error_code, result.error_message = outcome.code, outcome.message
        results.append(result)
    return AlterClientQuotasResponse(entries=results)


def _decision(entry: EntryData) -> Callable[[ClusterImage], Recorded]:
    return partial(
        alter_quotas,
        entity=[(part.entity_type, part.entity_name) for part in entry.entity],
        changes=[(change.key, None if change.remove else change.value) for change in entry.ops],
    )


def _refused(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[EntryResult(code, None, entry.entity) for entry in request.entries])


SERVICE = service(
    AlterClientQuotasRequest,
    handle,
    roles=BROKER_AND_CONTROLLER,
    is_forwarded=True,
    needs=Operation.ALTER_CONFIGS,
    refused=_refused,
)
