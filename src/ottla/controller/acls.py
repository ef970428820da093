"""ACLs: what CreateAcls and DeleteAcls decide over an image, and what a filter finds in it.

A decision that changes nothing is recorded, too, as a record without effect: what it rests on is the newest image only if a majority
follows this controller, and one that was deposed without knowing it would say that rights are gone, or there, from an image of before.

Source: KIP-11, KIP-140 (the APIs), KIP-290 (prefixes and MATCH), KIP-801 (records).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from ottla.controller.decided import Recorded
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, WILDCARD, Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import AccessControlEntryRecord, NoOpRecord, RemoveAccessControlEntryRecord
from ottla.metadata.acls import is_there
from ottla.metadata.image import ClusterImage

_NOT_CONCRETE: Final = (0, 1)  # UNKNOWN and ANY, of all four


def add_acls(image: ClusterImage, acls: Collection[AccessControlEntryRecord]) -> Recorded:
    """Adds the ACLs, each checked before. One that equals another, of the image or of these, is not recorded again."""
    records: dict[tuple[object, ...], AccessControlEntryRecord] = {}
    for acl in acls:
        if not is_there(image.acl_tables, acl):
            records.setdefault(_contents(acl), acl)
    return Recorded(tuple(records.values())) if records else confirm(image)


def remove_acls(image: ClusterImage, ids: Collection[bytes]) -> Recorded:
    """Removes the ACLs among these that still exist."""
    records = tuple(RemoveAccessControlEntryRecord(acl_id) for acl_id in ids if acl_id in image.acls)
    return Recorded(records) if records else confirm(image)


def confirm(_: ClusterImage) -> Recorded:
    """Changes nothing; once this is committed, the image is known to have been the newest."""
    return Recorded((NoOpRecord(),))


def check_acl(acl: AccessControlEntryRecord) -> None:
    """Raises INVALID_REQUEST, with the reason, when there can be no such ACL."""
    if acl.resource_type in _NOT_CONCRETE or acl.resource_type not in ResourceType.__members__.values():
        raise _refused(f"Invalid resourceType {_name(ResourceType, acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _refused(f"Invalid patternType {_name(PatternType, acl.pattern_type)}")
    if acl.operation in _NOT_CONCRETE or acl.operation not in Operation.__members__.values():
        raise _refused(f"Invalid operation {_name(Operation, acl.operation)}")
    if acl.permission_type not in (Permission.ALLOW, Permission.DENY):
        raise _refused(f"Invalid permissionType {_name(Permission, acl.permission_type)}")
    if not acl.resource_name:
        raise _refused("Invalid empty resource name")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER:
        raise _refused(f"The only valid name for the CLUSTER resource is {CLUSTER}")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise _refused(f"Could not parse principal from `{acl.principal[:100]}`: a type and a name are expected, as in User:alice")


class AclFilter(Struct, frozen=True):
    """A filter of DescribeAcls and DeleteAcls; None matches all names, principals, hosts."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def check(self) -> None:
        """Raises INVALID_REQUEST where a part of it is unknown."""
        for enum, value in (
            (ResourceType, self.resource_type), (PatternType, self.pattern_type),
            (Operation, self.operation), (Permission, self.permission_type),
        ):  # fmt: skip
            if value == 0 or value not in enum.__members__.values():
                raise _refused(f"the filter has an unknown {enum.__name__}: {value}")

    def fits(self, acl: AccessControlEntryRecord) -> bool:
        """True when the ACL is asked for."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._fits_pattern(acl.pattern_type, acl.resource_name)
        )

    def _fits_pattern(self, pattern_type: int, name: str) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.resource_name == name
        if pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(name)
        return name in (self.resource_name, WILDCARD)


def _contents(acl: AccessControlEntryRecord) -> tuple[object, ...]:
    """Returns all but its id."""
    return (
        acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type
    )  # fmt: skip


def fits_no_client(acl: AccessControlEntryRecord) -> bool:
    """True when its host is a name, which is compared with addresses and not looked up. Kafka takes such an ACL without a word."""
    if acl.host == WILDCARD:
        return False
    try:
        ipaddress.ip_address(acl.host)
    except ValueError:
        return True
    return False


def _name(enum: type[ResourceType | PatternType | Operation | Permission], value: int) -> str:
    return enum(value).name if value in enum.__members__.values() else str(value)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
