"""ACLs, users and tokens become znodes, and znodes the same image again; what others wrote there stays, and grants only what it says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metadata.znode_home import BYTES_MAX, EPOCH, Home

from ottla.broker.homes.zookeeper.loading import with_parents
from ottla.coordination import Create, MultiFailedError, Set
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.metadata import security_znodes, znodes
from ottla.metadata.image import USER, ClusterImage
from ottla.metadata.znode_writer import ZnodeWriter
from ottla.wire.schema import Stored

SCRAM_256 = "salt=c2FsdA==,stored_key=" + "A" * 43 + "=,server_key=" + "A" * 43 + "=,iterations=4096"


def begun_with(path: str, data: bytes) -> Home:
    """A controller that has found the znode, which a tool has written."""
    home = Home()
    parts = path.split("/")[1:-1]
    for parent in ("/" + "/".join(parts[: count + 1]) for count in range(len(parts))):
        if parent not in home.tree.paths():
            home.do([Create(parent)])
    home.do([Create(path, data)])
    cluster = home.read()
    home.image, home.writer = cluster.image, ZnodeWriter(cluster.known, controller_epoch=EPOCH, broker_id=1)
    return home


def test_a_users_quotas_and_credentials_are_one_znode() -> None:
    home = begun_with("/config/users/a%20b", znodes.encode_config({"SCRAM-SHA-256": SCRAM_256, "consumer_byte_rate": "5"}))
    [credential] = home.image.scram_credentials.values()
    assert (credential.name, credential.mechanism, credential.salt) == ("a b", 1, b"salt")
    home.write([ClientQuotaRecord([QuotaEntity(USER, "a b")], "consumer_byte_rate", 7.0, False)])
    assert home.read().image == home.image, "the credential is there still"
    home.write([UserScramCredentialRecord("a b", 2, b"s", bytes(64), bytes(64), 8192)])
    assert home.read().image == home.image
    assert home.tree.paths()["/config/changes/config_change_0000000001"] == b'{"version":2,"entity_path":"users/a%20b"}'
    home.write([RemoveUserScramCredentialRecord("a b", 1), RemoveUserScramCredentialRecord("a b", 2)])
    assert znodes.decode_config(home.tree.paths()["/config/users/a%20b"], "") == {"consumer_byte_rate": "7"}
    assert home.read().image == home.image


@pytest.mark.parametrize("path", ["/config/users/<default>", "/config/users/a/clients/b", "/config/clients/a", "/config/ips/127.0.0.1"])
def test_credentials_of_anything_but_a_user_are_none(path: str) -> None:
    home = begun_with(path, znodes.encode_config({"SCRAM-SHA-256": SCRAM_256}))
    assert not home.image.scram_credentials
    assert not home.writer.known.problems


def test_damaged_values_of_a_user_count_as_none_and_stay_in_the_tree() -> None:
    """The other values hold, and another controller is not kept from reading the rest."""
    values = {"SCRAM-SHA-256": "salt=x", "SCRAM-SHA-512": SCRAM_256, "consumer_byte_rate": "fast", "producer_byte_rate": "3"}
    home = begun_with("/config/users/u", znodes.encode_config(values))
    assert not home.image.scram_credentials
    assert home.image.quotas == {((USER, "u"),): {"producer_byte_rate": 3.0}}
    assert len(home.writer.known.problems) == 3
    home.write([ClientQuotaRecord([QuotaEntity(USER, "u")], "producer_byte_rate", 4.0, False)])
    assert znodes.decode_config(home.tree.paths()["/config/users/u"], "") == values | {"producer_byte_rate": "4"}
    home.write([UserScramCredentialRecord("u", 1, b"s", bytes(32), bytes(32), 4096)])
    assert list(home.read().image.scram_credentials) == [("u", 1)]
    home = begun_with("/config/users/u", b"nonsense")
    assert not home.image.scram_credentials
    assert len(home.writer.known.problems) == 1


def acl(
    name: str, principal: str = "User:a", *, permission: Permission = Permission.ALLOW, prefixed: bool = False
) -> AccessControlEntryRecord:
    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AccessControlEntryRecord(b"x" * 16, ResourceType.TOPIC, name, kind, principal, "*", Operation.READ, permission)


def test_the_acls_of_a_resource_are_one_znode_which_goes_with_the_last() -> None:
    home = Home()
    home.write([acl("t"), acl("t", "User:b"), acl("t-", prefixed=True)])
    paths = home.tree.paths()
    first, second = (f'{{"principal":"User:{name}","permissionType":"Allow","host":"*","operation":"Read"}}' for name in "ab")
    assert paths["/kafka-acl/Topic/t"].decode() == f'{{"acls":[{first},{second}],"version":1}}'
    assert paths["/kafka-acl-extended/prefixed/Topic/t-"].decode() == f'{{"acls":[{first}],"version":1}}'
    assert paths["/kafka-acl-changes/acl_changes_0000000000"] == b"TOPIC:t"
    assert b'"name":"t-"' in paths["/kafka-acl-extended-changes/acl_changes_0000000000"]
    assert home.read().image == home.image
    of_a, of_b = (one.id for one in home.image.acls.values() if one.resource_name == "t")
    home.write([RemoveAccessControlEntryRecord(of_a)])
    assert home.tree.version("/kafka-acl/Topic/t") == 1
    home.write([RemoveAccessControlEntryRecord(of_b)])
    assert "/kafka-acl/Topic/t" not in home.tree.paths()
    assert home.tree.paths()["/kafka-acl-changes/acl_changes_0000000002"] == b"TOPIC:t"
    home.write([acl("t", "User:c")])
    assert home.tree.version("/kafka-acl/Topic/t") == 0
    assert home.read().image == home.image


def test_an_acl_over_what_another_wrote_is_refused() -> None:
    home = Home()
    home.write([acl("t")])
    home.do([Set("/kafka-acl/Topic/t", b"", -1)])
    with pytest.raises(MultiFailedError, match="BadVersionError"):
        home.write([acl("t", "User:b")])


def test_acls_that_are_not_understood_stay_until_the_resource_is_opened_again() -> None:
    strange = '{"principal":"User:a","permissionType":"Deny","host":"*","operation":"Dance"}'
    home = begun_with("/kafka-acl/Topic/t", f'{{"acls":[{strange}],"version":1}}'.encode())
    [closing] = home.image.acls.values()
    assert (closing.principal, closing.operation, closing.permission_type) == ("User:*", Operation.ALL, Permission.DENY)
    home.write([acl("t")])
    assert strange in home.tree.paths()["/kafka-acl/Topic/t"].decode()
    assert home.read().image == home.image
    home.write([RemoveAccessControlEntryRecord(closing.id)])
    assert strange not in home.tree.paths()["/kafka-acl/Topic/t"].decode()
    assert home.read().image == home.image
    assert [one.principal for one in home.image.acls.values()] == ["User:a"]


@pytest.mark.parametrize("name", ["a/b", ".", "a\0"])
def test_names_that_no_znode_can_have_are_refused(name: str) -> None:
    home = Home()
    with pytest.raises(KafkaError, match="no znode can have that name"):
        home.write([acl(name)])
    if "/" not in name and "\0" not in name:  # which are encoded, of users
        for record in (
            UserScramCredentialRecord(name, 1, b"s", bytes(32), bytes(32), 4096),
            ClientQuotaRecord([QuotaEntity(USER, name)], "consumer_byte_rate", 7.0, False),
        ):
            with pytest.raises(KafkaError, match="no znode can have that name"):
                home.write([record])


def token(token_id: str, expires_ms: int = 5) -> DelegationTokenRecord:
    return DelegationTokenRecord("User:a", "User:b", ["User:c"], 1, 9, expires_ms, token_id)


def test_a_token_is_a_znode_and_one_of_another_id_is_none() -> None:
    home = begun_with("/delegation_token/tokens/other", security_znodes.encode_token(token("one")))
    assert not home.image.delegation_tokens
    assert "/delegation_token/tokens/other" in home.writer.known.problems[0]
    home.write([token("one")])
    home.write([token("one", 7)])
    assert home.tree.version("/delegation_token/tokens/one") == 1
    assert home.tree.paths()["/delegation_token/token_changes/token_change_0000000001"] == b"one"
    assert home.read().image == home.image
    home.write([RemoveDelegationTokenRecord("one")])
    assert "/delegation_token/tokens/one" not in home.tree.paths()


NUMBERS = st.integers(1, 3)
Step = Callable[[ClusterImage], list[Stored]]


def _acl(number: int, principal: str, permission: Permission, prefixed: bool) -> Step:
    return lambda image: [acl(f"t{number}", f"User:{principal}", permission=permission, prefixed=prefixed)]


def _without_acls(count: int) -> Step:
    return lambda image: [RemoveAccessControlEntryRecord(acl_id) for acl_id in list(image.acls)[:count]]


def _user(number: int, mechanism: int, is_set: bool) -> Step:
    size = 32 * mechanism
    credential = UserScramCredentialRecord(f"u{number}", mechanism, b"salt", bytes(size), bytes(size), 4096 + number)
    quota = ClientQuotaRecord([QuotaEntity(USER, f"u{number}")], "consumer_byte_rate", float(number), not is_set)
    return lambda image: [credential if is_set else RemoveUserScramCredentialRecord(f"u{number}", mechanism), *([quota] if is_set else [])]


def _token(number: int, is_set: bool) -> Step:
    def step(image: ClusterImage) -> list[Stored]:
        if is_set:
            return [token(f"id{number}", number)]
        return [RemoveDelegationTokenRecord(token_id) for token_id in list(image.delegation_tokens)[:1]]

    return step


STEPS = st.one_of(
    st.builds(_acl, NUMBERS, st.sampled_from("ab"), st.sampled_from([Permission.ALLOW, Permission.DENY]), st.booleans()),
    st.builds(_without_acls, NUMBERS),
    st.builds(_user, NUMBERS, st.integers(1, 2), st.booleans()),
    st.builds(_token, NUMBERS, st.booleans()),
)


@given(st.lists(STEPS, max_size=15), st.sampled_from([BYTES_MAX, 600]))
def test_the_tree_says_what_the_image_is(steps: list[Step], bytes_max: int) -> None:
    """read(write(records)) == replay(records), and a controller knows the versions of all that it may write again."""
    home = Home(bytes_max=bytes_max)
    for step in steps:
        home.write(step(home.image))
        read = home.read()
        assert read.image == home.image
        known, found = home.writer.known.versions, read.known.versions
        assert {path: version for path, version in known.items() if found[path] != version} == {}


PATHS = (
    *("/kafka-acl/Topic/t", "/kafka-acl-extended/prefixed/Group/g", "/config/users/u", "/config/users/u/clients/c"),
    "/delegation_token/tokens/id",
)
KEYS = ["version", "acls", "config", "SCRAM-SHA-256", "consumer_byte_rate", "tokenId", "owner", "u"]
VALUES = st.none() | st.integers() | st.text(max_size=4) | st.just(SCRAM_256)
TEXTS = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner), max_leaves=8)
DAMAGED = st.binary(max_size=30) | TEXTS.map(lambda value: json.dumps(value).encode())


@given(st.sampled_from(PATHS), DAMAGED)
def test_whatever_is_in_one_of_these_znodes_another_controller_reads_it_and_the_others(path: str, data: bytes) -> None:
    """And writes what it has read again: nothing is in its image that is not in the znodes."""
    home = begun_with("/kafka-acl/Cluster/kafka-cluster", security_znodes.encode_acls([("User:b", "*", Operation.ALTER, Permission.ALLOW)]))
    for parent in with_parents([path])[:-1]:
        if parent not in home.tree.paths():
            home.do([Create(parent)])
    home.do([Create(path, data)])
    cluster = home.read()
    assert [one.principal for one in cluster.image.acls.values() if one.permission_type == Permission.ALLOW] == ["User:b"]
    assert not cluster.image.delegation_tokens
    assert set(cluster.image.scram_credentials) <= {("u", 1)}
    home.image, home.writer = cluster.image, ZnodeWriter(cluster.known, controller_epoch=EPOCH, broker_id=1)
    home.write([acl("t"), acl("t", "User:b"), token("id")])
    home.write([UserScramCredentialRecord("u", 2, b"s", bytes(64), bytes(64), 4096)])
    assert home.read().image == home.image
