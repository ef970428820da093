"""Which ACLs DescribeAcls and DeleteAcls find: the words of KIP-290, in an oracle that has Kafka's numbers and none of ottla's code."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.acls import AclFilter, add_acls, remove_acls
from ottla.messages.metadata_records import AccessControlEntryRecord, NoOpRecord
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.replay import replay
from ottla.security.authorizer import Asker, allowed_operations
from ottla.security.principal import Principal

Acl = AccessControlEntryRecord
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP = 2, 3
READ, WRITE, ALL = 3, 4, 2
DENY, ALLOW = 2, 3
NAMES = ["a", "ab", "abc", "b", "*", "a*", "**", "A", "a\u0301", "\u00e1"]  # a letter in two forms is two names
OTHER_NAMES = ["", "abcd", "zz"]
PRINCIPALS = ["User:alice", "User:*", "User:ali", "Group:alice", "user:alice"]
HOSTS = ["*", "10.0.0.1", "10.0.0.11", "0:0:0:0:0:0:0:1", "::1"]

ACLS = st.builds(
    Acl,
    id=st.uuids().map(lambda one: one.bytes),
    resource_type=st.sampled_from([TOPIC, GROUP]),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from([READ, WRITE, ALL]),
    permission_type=st.sampled_from([DENY, ALLOW]),
)
FILTERS = st.builds(
    AclFilter,
    resource_type=st.sampled_from([ANY, TOPIC, GROUP]),
    resource_name=st.none() | st.sampled_from([*NAMES, *OTHER_NAMES]),
    pattern_type=st.sampled_from([ANY, MATCH, LITERAL, PREFIXED]),
    principal=st.none() | st.sampled_from(PRINCIPALS),
    host=st.none() | st.sampled_from(HOSTS),
    operation=st.sampled_from([ANY, READ, WRITE, ALL]),
    permission_type=st.sampled_from([ANY, DENY, ALLOW]),
)


def is_meant(wanted: AclFilter, acl: Acl) -> bool:
    """Each part of a filter by itself: a value is that value and no other, so that ALL is an operation, and ``*`` a host of its own."""
    for asked, found, everything in (
        (wanted.resource_type, acl.resource_type, ANY),
        (wanted.operation, acl.operation, ANY),
        (wanted.permission_type, acl.permission_type, ANY),
        (wanted.principal, acl.principal, None),
        (wanted.host, acl.host, None),
    ):
        if asked != everything and asked != found:
            return False
    return (acl.pattern_type, acl.resource_name) in patterns_meant(wanted, acl)


def patterns_meant(wanted: AclFilter, acl: Acl) -> set[tuple[int, str]]:
    """All patterns that the filter's name and kind of pattern mean; without a name, the ACL's own is one of them."""
    name = wanted.resource_name
    if wanted.pattern_type == MATCH and name is not None:  # every pattern that affects the resource of this name
        return {(LITERAL, name), (LITERAL, "*"), *((PREFIXED, name[:length]) for length in range(1, len(name) + 1))}
    kinds = {ANY: [LITERAL, PREFIXED], MATCH: [LITERAL, PREFIXED], LITERAL: [LITERAL], PREFIXED: [PREFIXED]}[wanted.pattern_type]
    return set(itertools.product(kinds, [acl.resource_name if name is None else name]))


@pytest.mark.parametrize("pattern_type", [ANY, MATCH, LITERAL, PREFIXED])
def test_each_pattern_is_found_by_the_filters_that_mean_it(pattern_type: int) -> None:
    """All names against all patterns; the other parts are any."""
    for name, of_acl, own_type in itertools.product([None, *NAMES, *OTHER_NAMES], NAMES, [LITERAL, PREFIXED]):
        wanted = AclFilter(ANY, name, pattern_type, None, None, ANY, ANY)
        acl = Acl(bytes(16), TOPIC, of_acl, own_type, "User:alice", "*", READ, ALLOW)
        assert wanted.fits(acl) is is_meant(wanted, acl), (wanted, acl)


@given(st.lists(ACLS, max_size=12), FILTERS)
def test_a_filter_finds_what_the_words_of_kip_290_say(acls: list[Acl], wanted: AclFilter) -> None:
    wanted.check()
    assert [wanted.fits(acl) for acl in acls] == [is_meant(wanted, acl) for acl in acls]


@given(ACLS, st.sampled_from([*NAMES, "abcd", "zz"]))
def test_match_finds_exactly_the_acls_that_the_authorizer_looks_at_for_that_name(acl: Acl, name: str) -> None:
    everybody = Acl(acl.id, acl.resource_type, acl.resource_name, acl.pattern_type, "User:*", "*", READ, ALLOW)
    wanted = AclFilter(acl.resource_type, name, MATCH, None, None, ANY, ANY)
    tables = replay(EMPTY_IMAGE, [everybody]).acl_tables
    allowed = allowed_operations(tables, Asker.of(Principal("User", "anybody"), "10.9.9.9"), acl.resource_type, name, otherwise=False)
    assert wanted.fits(everybody) == bool(allowed >> READ & 1)


@given(st.lists(ACLS, max_size=12), st.lists(FILTERS, min_size=1, max_size=3))
def test_what_filters_mean_is_removed_and_nothing_else(acls: list[Acl], filters: list[AclFilter]) -> None:
    image = replay(EMPTY_IMAGE, add_acls(EMPTY_IMAGE, acls).records)
    found = [acl.id for acl in image.acls.values() if any(wanted.fits(acl) for wanted in filters)]
    left = {acl.id for acl in image.acls.values() if not any(is_meant(wanted, acl) for wanted in filters)}
    records = remove_acls(image, found).records
    after = replay(image, records)
    assert set(after.acls) == left
    assert after.acl_tables.cells == replay(EMPTY_IMAGE, after.acls.values()).acl_tables.cells, "nothing of what is gone is in force"
    assert found or [type(record) for record in records] == [NoOpRecord]
