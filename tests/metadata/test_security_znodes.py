"""What the znodes of ACLs, users and tokens say, checked against what Apache Kafka 3.9.1's own encoders wrote.

The golden vectors are in ``golden/security_znodes_kafka_3_9.tsv``. What is damaged grants nothing, whatever it was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.messages.acl_codes import ANYBODY, Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import DelegationTokenRecord, UserScramCredentialRecord
from ottla.metadata import security_znodes, znodes
from ottla.metadata.acls import Pattern
from ottla.metadata.security_znodes import acl_record, decode_acls, decode_credential, decode_token, encode_acls, encode_token

_LINES = (Path(__file__).parent / "golden" / "security_znodes_kafka_3_9.tsv").read_text(encoding="utf-8").splitlines()
GOLDEN = {name: (path, data.encode()) for name, path, data in (line.split("\t") for line in _LINES)}
T: Pattern = (PatternType.LITERAL, ResourceType.TOPIC, "t")
TYPES = [kind for kind in ResourceType if kind > ResourceType.ANY]
PATTERNS = [PatternType.LITERAL, PatternType.PREFIXED]


@pytest.mark.parametrize("resource_type", TYPES)
@pytest.mark.parametrize("pattern_type", PATTERNS)
def test_acls_and_their_notices_are_kafkas(resource_type: ResourceType, pattern_type: PatternType) -> None:
    pattern = int(pattern_type), int(resource_type), "n:a"
    path, data = GOLDEN[f"acl-{resource_type:d}-{pattern_type:d}"]
    assert security_znodes.acl_path(pattern) == path
    assert security_znodes.pattern_at(path) == pattern
    assert encode_acls([("User:ü a", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW)]) == data
    assert decode_acls(data, pattern).acls == (acl_record(pattern, "User:ü a", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW),)
    notice = GOLDEN[f"acl-change-{resource_type:d}-{pattern_type:d}"]
    assert security_znodes.acl_change(pattern) == notice
    assert security_znodes.decode_acl_change(notice[1], f"{notice[0]}0000000007") == pattern


@pytest.mark.parametrize("operation", [one for one in Operation if one > Operation.ANY and one is not Operation.TWO_PHASE_COMMIT])
def test_operations_are_kafkas(operation: Operation) -> None:
    """All that Kafka 3.9 has."""
    path, data = GOLDEN[f"acl-op-{operation:d}"]
    assert path == security_znodes.acl_path(T)
    assert encode_acls([('User:"q\\/', "10.0.0.1", operation, Permission.DENY)]) == data
    [acl] = decode_acls(data, T).acls
    assert (acl.operation, acl.permission_type, acl.host) == (operation, Permission.DENY, "10.0.0.1")
    assert decode_acls(data.upper().replace(b"ACLS", b"acls").replace(b"VERSION", b"version"), T).acls != (acl,), "keys are as they are"


def test_no_acls_are_none() -> None:
    assert encode_acls([]) == GOLDEN["acl-none"][1]
    assert decode_acls(GOLDEN["acl-none"][1], T) == decode_acls(b"", T) == security_znodes.Acls(())
    assert security_znodes.pattern_at("/kafka-acl/Topic") is None
    assert security_znodes.pattern_at("/kafka-acl/Other/t") is None


def entry(**changed: Any) -> dict[str, Any]:
    return {"principal": "User:a", "permissionType": "Allow", "host": "*", "operation": "Read"} | changed


CLOSING = acl_record(T, ANYBODY, "*", Operation.ALL, Permission.DENY)
READ = acl_record(T, "User:a", "*", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense", b"\xff", b"[]", b"{}", b"null", b'{"version":2,"acls":[]}', b'{"version":"1","acls":[]}', b'{"version":1}',
        b'{"version":1,"acls":{}}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_znode_that_cannot_be_read_closes_its_resource(data: bytes) -> None:
    """It may have denied something: with ``allow.everyone.if.no.acl.found``, or beside an ACL of a prefix, to pass it over would open."""
    found = decode_acls(data, T)
    assert found.acls == (CLOSING,)
    assert found.problem is not None
    assert "/kafka-acl/Topic/t" in found.problem


def test_an_acl_with_an_empty_host_is_understood() -> None:
    """It fits no client, as in Kafka, and closes nothing."""
    found = decode_acls(json.dumps({"version": 1, "acls": [entry(host="", permissionType="Deny")]}).encode(), T)
    assert [(acl.principal, acl.host) for acl in found.acls] == [("User:a", "")]
    assert not found.kept
    assert found.problem is None


@pytest.mark.parametrize(
    "bad",
    [
        entry(principal="alice"), entry(principal=""), entry(principal="User:"), entry(principal=None), entry(host=7),
        entry(operation="Raed"), entry(operation=3), entry(operation="Any"), {"permissionType": "Allow"},
    ],
)  # fmt: skip
def test_an_acl_that_is_not_understood_grants_nothing_and_stays(bad: dict[str, Any]) -> None:
    found = decode_acls(json.dumps({"version": 1, "acls": [bad, entry()]}).encode(), T)
    assert found.acls == (READ,)
    assert found.kept == (bad,)
    assert json.loads(encode_acls([("User:a", "*", Operation.READ, Permission.ALLOW)], found.kept))["acls"] == [entry(), bad]
    assert decode_acls(json.dumps({"version": 1, "acls": [bad]}).encode(), T).acls == (CLOSING,), "it is not as if there were none"


@pytest.mark.parametrize("bad", [entry(permissionType="Deny", operation="Raed"), entry(permissionType="Dney"), 5, None, [], {}])
def test_one_that_may_deny_closes(bad: Any) -> None:
    found = decode_acls(json.dumps({"version": 1, "acls": [entry(), bad]}).encode(), T)
    assert found.acls == (READ, CLOSING)


def test_operations_and_permissions_are_read_in_any_case_as_kafka_reads_them() -> None:
    data = json.dumps({"version": 1, "acls": [entry(operation="DESCRIBECONFIGS", permissionType="ALLOW")]}).encode()
    assert decode_acls(data, T).acls == (acl_record(T, "User:a", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW),)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3))
ENTRIES = st.dictionaries(st.sampled_from(["principal", "permissionType", "host", "operation"]), JSON, max_size=4)


@given(
    st.one_of(
        st.binary(max_size=40), st.lists(ENTRIES | JSON, max_size=4).map(lambda acls: json.dumps({"version": 1, "acls": acls}).encode())
    )
)
@example(b'{"version":1,"acls":[{"principal":"User:a","permissionType":"allow","host":"*","operation":"READ"}]}')
def test_whatever_is_there_allows_only_what_it_says_in_full(data: bytes) -> None:
    for acl in decode_acls(data, T).acls:
        if acl.permission_type == Permission.ALLOW:
            complete = [one for one in json.loads(data)["acls"] if isinstance(one, dict) and len(one) == 4]
            assert (acl.principal, acl.host) in [(one["principal"], one["host"]) for one in complete]


NAMES = st.text(min_size=1, max_size=12)
ACLS = st.lists(
    st.tuples(
        NAMES.map(lambda name: f"User:{name}"), NAMES, st.sampled_from([int(one) for one in Operation if one > Operation.ANY]),
        st.sampled_from([int(Permission.ALLOW), int(Permission.DENY)]),
    ),
    max_size=6,
)  # fmt: skip


@given(ACLS, st.sampled_from(TYPES), st.sampled_from(PATTERNS), NAMES.filter(znodes.can_be_named))
def test_acls_are_read_again(
    acls: list[tuple[str, str, int, int]], resource_type: ResourceType, pattern_type: PatternType, name: str
) -> None:
    pattern = int(pattern_type), int(resource_type), name
    found = decode_acls(encode_acls(acls), pattern)
    assert {acl.id for acl in found.acls} == {acl_record(pattern, *acl).id for acl in acls}
    assert not found.kept
    prefix, data = security_znodes.acl_change(pattern)
    assert security_znodes.decode_acl_change(data, f"{prefix}1") == pattern


@pytest.mark.parametrize(
    ("directory", "data"),
    [
        (security_znodes.LITERAL_CHANGES, b"t"), (security_znodes.LITERAL_CHANGES, b"ANY:t"), (security_znodes.LITERAL_CHANGES, b"TOPIC:"),
        (security_znodes.LITERAL_CHANGES, b"\xff:t"), (security_znodes.LITERAL_CHANGES, b"TOPIC:.."),
        (security_znodes.LITERAL_CHANGES, b"TOPIC:a/b"), (security_znodes.PREFIXED_CHANGES, b"{"),
        (security_znodes.PREFIXED_CHANGES, b'{"version":2,"resourceType":"TOPIC","name":"a","patternType":"PREFIXED"}'),
        (security_znodes.PREFIXED_CHANGES, b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"MATCH"}'),
        (security_znodes.PREFIXED_CHANGES, b'{"version":1,"resourceType":"TOPIC","name":7,"patternType":"PREFIXED"'),
    ],
)  # fmt: skip
def test_a_notice_that_says_nothing_is_named(directory: str, data: bytes) -> None:
    with pytest.raises(DecodeError, match=directory):
        security_znodes.decode_acl_change(data, f"{directory}/acl_changes_0000000001")


def test_names_that_no_znode_can_have() -> None:
    for name in ("", ".", "..", "a/b", "a\0", "a\x1f", "a\x7f", "a\ufff0", "\U0001f600"):
        assert not znodes.can_be_named(name)
    for name in ("a", "...", "*", "a b", "ü", "a:b", "%2F"):
        assert znodes.can_be_named(name)


def _credential(mechanism: int, length: int, salt: bytes, iterations: int) -> UserScramCredentialRecord:
    return UserScramCredentialRecord("a b", mechanism, salt, b"stored".ljust(length, b"\0"), b"server".ljust(length, b"\0"), iterations)


def test_credentials_are_kafkas() -> None:
    first, second = _credential(1, 32, b"salt-and-more", 4096), _credential(2, 64, b"\xfb\xff\0", 8192)
    values = dict(map(security_znodes.encode_credential, [first, second]))
    path, data = GOLDEN["scram-256"]
    assert path == f"{znodes.CONFIG}/users/{znodes.sanitized('a b')}"
    assert znodes.encode_config({"SCRAM-SHA-256": values["SCRAM-SHA-256"]}) == data
    assert znodes.encode_config(values | {"producer_byte_rate": "1024"}) == GOLDEN["scram-both"][1]
    found = znodes.decode_config(GOLDEN["scram-both"][1], path)
    assert [decode_credential("a b", key, found[key]) for key in security_znodes.SCRAM] == [first, second]


GOOD = (
    "salt=c2FsdA==,stored_key=c3RvcmVkAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,"
    "server_key=c2VydmVyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,iterations=4096"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("iterations=4096", "iterations=4095"), ("iterations=4096", "iterations=x"), (",iterations=4096", ""), ("c2FsdA==", ""),
        ("c2FsdA==", "c2Fs dA=="), ("c3RvcmVk", ""), ("salt=", "salt=c2FsdA==,salt="), ("salt", "pepper"), ("=4096", "=9999999999"),
    ],
)  # fmt: skip
def test_a_credential_that_is_damaged_is_none_and_nothing_of_it_is_shown(old: str, new: str) -> None:
    assert decode_credential("u", "SCRAM-SHA-256", GOOD).iterations == 4096
    with pytest.raises(DecodeError) as raised:
        decode_credential("u", "SCRAM-SHA-256", GOOD.replace(old, new))
    assert "c3RvcmVk" not in str(raised.value)
    assert "c2Fs" not in str(raised.value)
    with pytest.raises(DecodeError):
        decode_credential("u", "SCRAM-SHA-512", GOOD)


def test_tokens_are_kafkas() -> None:
    token = DelegationTokenRecord("User:ü a", "User:bob", ["User:c*~", "User:bob"], 1700000000001, 1700000009999, 1700000005555, "q1w2e3_-")
    path, data = GOLDEN["token"]
    assert security_znodes.token_path("q1w2e3_-") == path
    assert encode_token(token) == data
    assert decode_token(data, "q1w2e3_-") == token
    plain = decode_token(GOLDEN["token-plain"][1], "q1w2e3_-")
    assert encode_token(plain) == GOLDEN["token-plain"][1]
    old = json.loads(GOLDEN["token"][1]) | {"version": 2}
    del old["tokenRequester"]
    assert decode_token(json.dumps(old).encode(), "q1w2e3_-").requester == "User:ü a"
    prefix, notice = f"{security_znodes.TOKEN_CHANGES}/{security_znodes.TOKEN_CHANGE}", b"q1w2e3_-"
    assert (prefix, notice) == GOLDEN["token-change"]


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 4}, {"version": 0}, {"tokenId": "another"}, {"owner": "ann"}, {"owner": 1}, {"renewers": ["ann"]}, {"renewers": None},
        {"maxTimestamp": "1"}, {"maxTimestamp": -1}, {"expiryTimestamp": 1 << 63}, {"issueTimestamp": True},
    ],
)  # fmt: skip
def test_a_token_that_is_damaged_is_none(changed: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="/delegation_token/tokens/q1w2e3_-"):
        decode_token(json.dumps(json.loads(GOLDEN["token"][1]) | changed).encode(), "q1w2e3_-")
