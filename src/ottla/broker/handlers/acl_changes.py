"""What the three APIs of ACLs share."""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.controller.acls import AclFilter
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.delete_acls import DeleteAclsFilter
from ottla.messages.describe_acls import DescribeAclsRequest


def check_enabled(parts: Parts) -> None:
    """Raises SECURITY_DISABLED on a node without an authorizer: ACLs would protect nothing."""
    if not parts.authorizer.is_configured:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def acl_filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Returns the filter that the request asks for."""
    return AclFilter(
        resource_type=asked.resource_type_filter,
        resource_name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission_type=asked.permission_type,
    )
