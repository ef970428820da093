"""ACLs that are none, filters that fit too much, and a great many of both: for a broker that has an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from tests.hostile.case import Case
from tests.hostile.wire_bytes import of_api, request

from ottla.messages.acl_codes import CLUSTER, Operation, PatternType, Permission, ResourceType
from ottla.messages.api_keys import ApiKey
from ottla.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.messages.describe_acls import DescribeAclsRequest

TEXTS: Final = {
    "empty": "",
    "of one character": "t",
    "of 32,767 bytes": "t" * 32_767,
    "with a nul": "\0",
    "with a line": "a\nb",
    "of four bytes": "\U0001f512",
    "without a colon": "alice",
    "with a colon first": ":alice",
    "with a colon last": "User:",
    "with many colons": "User:a:b:c",
}
NUMBERS: Final = (-128, -1, 0, 1, 2, 4, 5, 7, 8, 15, 16, 99, 127)
MANY: Final = 10_000


def acl(**changed: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC, "resource_name": "t", "resource_pattern_type": PatternType.LITERAL, "principal": "User:a",
        "host": "*", "operation": Operation.READ, "permission_type": Permission.DENY,
    }  # fmt: skip
    return AclCreation(**(fields | changed))


def create(*acls: AclCreation) -> bytes:
    return request(CreateAclsRequest(list(acls)), 3)


def wanted(**changed: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "resource_type_filter": ResourceType.ANY, "resource_name_filter": "nothing", "pattern_type_filter": PatternType.ANY,
        "principal_filter": "User:nobody", "host_filter": None, "operation": Operation.ANY, "permission_type": Permission.ANY,
    }  # fmt: skip
    return fields | changed


def creations() -> Iterator[Case]:
    for label, text in TEXTS.items():
        for field in ("resource_name", "principal", "host"):
            yield Case(f"an ACL whose {field} is {label}", create(acl(**{field: text})))
    for number in NUMBERS:
        for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
            yield Case(f"an ACL whose {field} is {number}", create(acl(**{field: number})))
    yield Case("an ACL of another cluster", create(acl(resource_type=ResourceType.CLUSTER, resource_name="kafka-cluster2")))
    yield Case("an ACL of the cluster by its beginning", create(acl(resource_type=4, resource_name="kafka", resource_pattern_type=4)))
    yield Case("an ACL of every cluster", create(acl(resource_type=4, resource_name="*")))
    yield Case("no ACL", create())
    yield Case("the same ACL 10,000 times", lambda: create(*[acl()] * MANY))
    yield Case("10,001 ACLs", lambda: create(*(acl(resource_name=f"t{n}") for n in range(MANY + 1))))
    yield Case("100,000 ACLs that are none", lambda: create(*[acl(operation=0)] * 100_000))
    yield Case("one ACL among others that are none", create(acl(principal="a"), acl(resource_name="kept"), acl(operation=1)))
    yield Case("an ACL of version 1 without a pattern", of_api(ApiKey.CREATE_ACLS, 1, b"\0\0\0\1\2\0\1t"))
    yield Case("an ACL of version 0", of_api(ApiKey.CREATE_ACLS, 0, b"\0\0\0\0"))
    yield Case("an ACL of version 4", of_api(ApiKey.CREATE_ACLS, 4, b"\0\0\0\0"))
    yield Case("2**31-1 ACLs", of_api(ApiKey.CREATE_ACLS, 1, b"\x7f\xff\xff\xff"))
    yield Case("-2 ACLs", of_api(ApiKey.CREATE_ACLS, 1, b"\xff\xff\xff\xfe"))
    yield Case("an ACL whose name is no UTF-8", of_api(ApiKey.CREATE_ACLS, 1, b"\0\0\0\1\2\0\2\xff\xfe\3\0\1u\0\1*\3\3"))
    yield Case("an ACL whose principal is null", of_api(ApiKey.CREATE_ACLS, 1, b"\0\0\0\1\2\0\1t\3\xff\xff\0\1*\3\3"))


def filters() -> Iterator[Case]:
    for label, text in TEXTS.items():
        for field in ("resource_name_filter", "principal_filter", "host_filter"):
            given = wanted(**{field: text})
            yield Case(f"a look at ACLs whose {field} is {label}", request(DescribeAclsRequest(**given), 3))
            yield Case(f"a removal of ACLs whose {field} is {label}", request(DeleteAclsRequest([DeleteAclsFilter(**given)]), 3))
    for number in NUMBERS:
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
            given = wanted(**{field: number})
            yield Case(f"a look at ACLs whose {field} is {number}", request(DescribeAclsRequest(**given), 3))
            yield Case(f"a removal of ACLs whose {field} is {number}", request(DeleteAclsRequest([DeleteAclsFilter(**given)]), 3))
    yield Case("no filter", request(DeleteAclsRequest([]), 3))
    yield Case("10,000 filters", partial(_many_filters, MANY))
    yield Case("a null of version 1", of_api(ApiKey.DESCRIBE_ACLS, 1, b"\1\xff\xff\1\xff\xff\xff\xff\1\1"))
    yield Case("a look that is cut short", of_api(ApiKey.DESCRIBE_ACLS, 1, b"\1\xff\xff\1\xff"))
    yield Case("a match of the cluster", request(DescribeAclsRequest(**wanted(resource_type_filter=4, resource_name_filter=CLUSTER)), 2))


def _many_filters(count: int) -> bytes:
    return request(DeleteAclsRequest([DeleteAclsFilter(**wanted(resource_name_filter=f"none-{n}")) for n in range(count)]), 3)
