"""What is an ACL, which ones a filter fits, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ottla.controller.acls import AclFilter, add_acls, check_acl, fits_no_client, remove_acls
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import AccessControlEntryRecord, NoOpRecord
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.replay import replay


def acl(number: int = 1, **changed: Any) -> AccessControlEntryRecord:
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC, "resource_name": "t", "pattern_type": PatternType.LITERAL, "principal": "User:alice",
        "host": "*", "operation": Operation.READ, "permission_type": Permission.ALLOW,
    }  # fmt: skip
    return AccessControlEntryRecord(id=number.to_bytes(16, "big"), **(fields | changed))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"resource_type": 0}, "resourceType UNKNOWN"),
        ({"resource_type": 1}, "resourceType ANY"),
        ({"resource_type": 8}, "resourceType 8"),
        ({"resource_type": -1}, "resourceType -1"),
        ({"pattern_type": 0}, "patternType UNKNOWN"),
        ({"pattern_type": 1}, "patternType ANY"),
        ({"pattern_type": 2}, "patternType MATCH"),
        ({"pattern_type": 5}, "patternType 5"),
        ({"operation": 0}, "operation UNKNOWN"),
        ({"operation": 1}, "operation ANY"),
        ({"operation": 99}, "operation 99"),
        ({"permission_type": 0}, "permissionType UNKNOWN"),
        ({"permission_type": 1}, "permissionType ANY"),
        ({"permission_type": 4}, "permissionType 4"),
        ({"resource_name": ""}, "empty resource name"),
        ({"resource_type": 4, "resource_name": "x"}, "kafka-cluster"),
        ({"principal": ""}, "parse principal"),
        ({"principal": "alice"}, "parse principal"),
        ({"principal": ":alice"}, "parse principal"),
        ({"principal": "User:"}, "parse principal"),
    ],
)
def test_what_is_no_acl_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_acl(acl(**changed))
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert why in caught.value.message


@pytest.mark.parametrize("changed", [{}, {"resource_type": 4, "resource_name": "kafka-cluster"}, {"operation": 2}, {"resource_name": "*"}])
def test_valid_acls_are_accepted(changed: dict[str, Any]) -> None:
    check_acl(acl(**changed))


def test_a_host_name_fits_no_client() -> None:
    assert [fits_no_client(acl(host=host)) for host in ("*", "10.0.0.1", "::1", "host1", "")] == [False, False, False, True, True]


ANY = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, ["literal", "prefix", "star", "group", "deny"]),
        ({"resource_type": 2}, ["literal", "prefix", "star", "deny"]),
        ({"resource_type": 2, "resource_name": "orders"}, ["literal"]),
        ({"resource_name": "orders", "pattern_type": PatternType.PREFIXED}, []),
        ({"resource_name": "ord", "pattern_type": PatternType.PREFIXED}, ["prefix"]),
        ({"resource_name": "orders", "pattern_type": PatternType.LITERAL}, ["literal"]),
        ({"resource_name": "orders", "pattern_type": PatternType.MATCH}, ["literal", "prefix", "star"]),
        ({"resource_name": "or", "pattern_type": PatternType.MATCH}, ["star"]),
        ({"pattern_type": PatternType.PREFIXED}, ["prefix"]),
        ({"principal": "User:bob"}, ["group"]),
        ({"host": "10.0.0.1"}, ["deny"]),
        ({"operation": Operation.WRITE}, ["prefix"]),
        ({"permission_type": Permission.DENY}, ["deny"]),
    ],
)
def test_a_filter_fits(changed: dict[str, Any], fits: list[str]) -> None:
    acls = {
        "literal": acl(resource_name="orders"),
        "prefix": acl(resource_name="ord", pattern_type=PatternType.PREFIXED, operation=Operation.WRITE),
        "star": acl(resource_name="*"),
        "group": acl(resource_type=ResourceType.GROUP, principal="User:bob", resource_name="g"),
        "deny": acl(resource_name="x", permission_type=Permission.DENY, host="10.0.0.1"),
    }
    wanted = replace(ANY, **changed)
    wanted.check()
    assert [name for name, one in acls.items() if wanted.fits(one)] == fits


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission_type"])
@pytest.mark.parametrize("value", [0, -1, 99])
def test_a_filter_of_what_is_not_known_is_refused(field: str, value: int) -> None:
    with pytest.raises(KafkaError) as caught:
        replace(ANY, **{field: value}).check()
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_an_equal_acl_is_recorded_once() -> None:
    image = replay(EMPTY_IMAGE, add_acls(EMPTY_IMAGE, [acl(1), acl(2), acl(3, host="10.0.0.1")]).records)
    assert len(image.acls) == 2
    assert add_acls(image, [acl(4), acl(5, operation=Operation.WRITE)]).records == (acl(5, operation=Operation.WRITE),)


def test_what_is_gone_is_not_removed_again() -> None:
    image = replay(EMPTY_IMAGE, [acl(1), acl(2, host="10.0.0.1")])
    gone = remove_acls(image, [acl(1).id, acl(7).id]).records
    assert [record.id for record in gone] == [acl(1).id]  # type: ignore[attr-defined]
    assert list(replay(image, gone).acls) == [acl(2).id]


def test_what_changes_nothing_is_recorded_all_the_same() -> None:
    """A controller that was deposed and does not know it cannot commit that: it says nothing from an image of before."""
    image = replay(EMPTY_IMAGE, [acl(1)])
    assert add_acls(image, [acl(2)]).records == remove_acls(image, [acl(7).id]).records == (NoOpRecord(),)
