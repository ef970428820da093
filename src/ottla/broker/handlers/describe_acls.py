"""DescribeAcls, versions 1-3: the ACLs that fit a filter, by resource (KIP-140).  v2 flexible.

Whether this broker enforces them or not: without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from ottla.broker.handlers.acl_changes import acl_filter, check_enabled
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import BROKER_AND_CONTROLLER, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse


async def handle(parts: Parts, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    wanted = acl_filter(request)
    try:
        check_enabled(parts)
        wanted.check()
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    async for acl in Slices(parts.world.clock).over(parts.image.acls.values()):
        if wanted.fits(acl):
            key = (acl.resource_type, acl.resource_name, acl.pattern_type)
            if key not in resources:
                resources[key] = DescribeAclsResource(*key)
            resources[key].acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


SERVICE = service(DescribeAclsRequest, handle, roles=BROKER_AND_CONTROLLER, needs=Operation.DESCRIBE)
