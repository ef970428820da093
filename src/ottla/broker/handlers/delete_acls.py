"""DeleteAcls, versions 1-3: the ACLs that fit filters are removed, and listed with each filter that they fit (KIP-140).  v2 flexible.

All of a request go together, or none. What is created while the filters are compared may stay.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.acl_changes import acl_filter, check_enabled
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices
from ottla.controller.acls import confirm, remove_acls
from ottla.controller.operation_size import too_many_records
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse
from ottla.messages.metadata_records import AccessControlEntryRecord


async def handle(parts: Parts, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    results: list[DeleteAclsFilterResult] = []
    found: dict[bytes, None] = {}
    slices = Slices(parts.world.clock)
    if parts.authorizer.is_configured:
        await parts.controller.decide([confirm])  # the filters are compared with the newest ACLs
    async for asked in slices.over(request.filters):
        result = DeleteAclsFilterResult(error_message=None)
        results.append(result)
        wanted = acl_filter(asked)
        try:
            check_enabled(parts)
            wanted.check()
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        async for acl in slices.over(parts.image.acls.values()):
            if wanted.fits(acl):
                result.matching_acls.append(_matching(acl))
                found[acl.id] = None
    if found:
        [outcome] = await parts.controller.decide([partial(remove_acls, ids=found)], refused=too_many_records(len(found)))
        if isinstance(outcome, KafkaError):
            return _refused(request, outcome.code, outcome.message)
    return DeleteAclsResponse(filter_results=results)


def _matching(acl: AccessControlEntryRecord) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _refused(request: DeleteAclsRequest, code: ErrorCode, text: str | None = None) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code, text) for _ in request.filters])


SERVICE = service(
    DeleteAclsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Operation.ALTER, refused=_refused
)  # fmt: skip
