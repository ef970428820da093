"""Access control lists (KIP-140): created, listed, removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ottla.client.admin.base import AdminBase, error_of, raise_for
from ottla.client.wrong_calls import members
from ottla.errors import KafkaError
from ottla.messages.acl_codes import WILDCARD, Operation, PatternType, Permission, ResourceType
from ottla.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse
from ottla.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """A permission, or a denial, for a principal on the resources that a pattern covers, from a host: an address, or ``*``."""

    resource_type: ResourceType
    """The type of the resources."""
    resource_name: str
    """Their name, or its first letters, as ``pattern_type`` says; ``*`` as a literal name is every name."""
    principal: str
    """Whom it concerns, as ``User:alice``; ``User:*`` is every user."""
    operation: Operation
    """What it allows or denies."""
    permission: Permission = Permission.ALLOW
    """Whether it allows or denies; a denial outweighs every other ACL."""
    host: str = WILDCARD
    """The address that the user comes from; ``*`` is every address."""
    pattern_type: PatternType = PatternType.LITERAL
    """LITERAL for the name itself, PREFIXED for every name that starts with it."""

    def __post_init__(self) -> None:
        """Raises TypeError for a word in the place of an enum's member, which no request can hold."""
        kinds = {"resource_type": ResourceType, "operation": Operation, "permission": Permission, "pattern_type": PatternType}
        for name, kind in kinds.items():
            given = getattr(self, name)
            if not isinstance(given, kind):
                raise TypeError(f"{name}={given!r}: give a member of {kind.__name__}, such as {kind.__name__}.{_member_of(kind, given)}")


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A choice of ACLs; what is left out fits all. With ``PatternType.MATCH`` the name is a resource's, and all that cover it fit."""

    resource_type: ResourceType = ResourceType.ANY
    """The type of the resources; ANY for all."""
    resource_name: str | None = None
    """The name in the ACL, or with MATCH that of a resource; None for all."""
    principal: str | None = None
    """As ``User:alice``; None for all."""
    operation: Operation = Operation.ANY
    """The operation; ANY for all."""
    permission: Permission = Permission.ANY
    """ALLOW or DENY; ANY for both."""
    host: str | None = None
    """The host in the ACL; None for all."""
    pattern_type: PatternType = PatternType.ANY
    """LITERAL, PREFIXED, MATCH (all that cover the resource of this name), or ANY."""


def _member_of(kind: type[Enum], given: object) -> str:
    """Returns the member that the word means, or the last one."""
    meant = str(given).upper().replace("-", "_")
    return meant if meant in kind.__members__ else list(kind)[-1].name


class AclAdmin(AdminBase):
    async def create_acls(self, acls: Iterable[Acl]) -> dict[Acl, KafkaError | None]:
        """Creates the ACLs, which are in force at the broker that answers; an ACL that exists already is no error."""
        wanted = list(dict.fromkeys(members(acls, "create_acls", Acl)))
        creations = [
            AclCreation(acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)
            for acl in wanted
        ]
        response = await self._cluster.ask(None, CreateAclsRequest(creations), CreateAclsResponse)
        return {acl: error_of(result.error_code, result.error_message) for acl, result in zip(wanted, response.results, strict=True)}

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Returns the ACLs that match the filter, in order; all without a filter."""
        wanted = wanted or AclFilter()
        request = DescribeAclsRequest(
            wanted.resource_type, wanted.resource_name, wanted.pattern_type, wanted.principal, wanted.host, wanted.operation,
            wanted.permission,
        )  # fmt: skip
        response = await self._cluster.ask(None, request, DescribeAclsResponse)
        raise_for(response.error_code, response.error_message)
        return sorted(
            Acl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                acl.principal,
                Operation(acl.operation),
                Permission(acl.permission_type),
                acl.host,
                PatternType(resource.pattern_type),
            )
            for resource in response.resources
            for acl in resource.acls
        )

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Deletes the ACLs that match each filter, all or none, and returns them. KafkaError of the first filter that is refused."""
        asked = [
            DeleteAclsFilter(
                one.resource_type, one.resource_name, one.pattern_type, one.principal, one.host, one.operation, one.permission
            )
            for one in members(filters, "delete_acls", AclFilter)
        ]  # fmt: skip
        response = await self._cluster.ask(None, DeleteAclsRequest(asked), DeleteAclsResponse)
        for result in response.filter_results:
            raise_for(result.error_code, result.error_message)
        return [sorted(map(_acl_of, result.matching_acls)) for result in response.filter_results]


def _acl_of(found: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        ResourceType(found.resource_type), found.resource_name, found.principal, Operation(found.operation),
        Permission(found.permission_type), found.host, PatternType(found.pattern_type),
    )  # fmt: skip
