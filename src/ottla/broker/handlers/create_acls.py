"""CreateAcls, versions 1-3: ACLs are added, one result for each, in order (KIP-140).  v2 flexible.

What is no ACL is refused by itself; the others are recorded together. One that is there already is no error, and not recorded again.
Where some have no place in the cluster's home (ZooKeeper has no znode ``a/b``), each is recorded by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle

from ottla.broker.handlers.acl_changes import check_enabled
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices
from ottla.controller.acls import add_acls, check_acl, fits_no_client
from ottla.controller.decided import Recorded
from ottla.controller.operation_size import too_many_records
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.acl_codes import Operation
from ottla.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.messages.metadata_records import AccessControlEntryRecord
from ottla.metadata.image import ClusterImage

log = get_logger(__name__)


async def handle(parts: Parts, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    results: list[AclCreationResult] = []
    wanted: list[tuple[AclCreationResult, AccessControlEntryRecord]] = []
    slices = Slices(parts.world.clock)
    async for creation in slices.over(request.creations):
        result = AclCreationResult(error_message=None)
        results.append(result)
        acl = _record(parts, creation)
        try:
            check_enabled(parts)
            check_acl(acl)
            wanted.append((result, acl))
            if fits_no_client(acl):
                log.warning("acl_of_a_host_name", host=acl.host[:200], principal=acl.principal[:200], way_out="name an address, or *")
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    if not wanted:
        return CreateAclsResponse(results=results)
    excess = too_many_records(len(wanted))
    outcomes = await parts.controller.decide([_decision([acl for _, acl in wanted])], refused=excess)
    if excess is None and isinstance(outcomes[0], KafkaError):
        outcomes = await parts.controller.decide(_decision([acl]) for _, acl in wanted)
    async for (result, _), outcome in slices.over(zip(wanted, cycle(outcomes), strict=False)):
        if isinstance(outcome, KafkaError):
            result.error_code, result.error_message = outcome.code, outcome.message
    return CreateAclsResponse(results=results)


def _decision(acls: list[AccessControlEntryRecord]) -> Callable[[ClusterImage], Recorded]:
    return partial(add_acls, acls=acls)


def _record(parts: Parts, creation: AclCreation) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=parts.world.random.getrandbits(128).to_bytes(16, "big"),
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )


def _refused(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(code, None) for _ in request.creations])


SERVICE = service(
    CreateAclsRequest, handle, roles=BROKER_AND_CONTROLLER, is_forwarded=True, needs=Operation.ALTER, refused=_refused
)  # fmt: skip
