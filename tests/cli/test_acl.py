"""``ottla acl`` as a shell runs it, against a broker whose authorizer takes everybody without authentication for a super user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.principals import STANDARD
from tests.cli.test_commands import items, ottla

from ottla.client.admin import UserChange
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.runtime.serve import BrokerThread
from ottla.sync import Acl, Admin, NewTopic
from ottla.types import Secret

TOPIC = ResourceType.TOPIC


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    secured = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), **secured}) as thread:
        yield thread.bootstrap


def known(bootstrap: str) -> list[Acl]:
    with Admin(bootstrap) as admin:
        return admin.describe_acls()


def test_one_option_allows_all_that_a_producer_or_a_consumer_needs(bootstrap: str) -> None:
    planned = ottla(bootstrap, "acl", "allow", "User:a", "--producer", "--topic", "t", "--format", "json")
    assert (planned.returncode, len(json.loads(planned.stdout)["items"]), known(bootstrap)) == (1, 3, [])
    assert "add --yes to apply it" in planned.stderr
    with Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic("t")]) == {"t": None}
    done = ottla(bootstrap, "acl", "allow", "User:a", "--producer", "--topic", "t", "--transactional-id", "x", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    done = ottla(bootstrap, "acl", "allow", "User:b", "--consumer", "--topic", "t", "--group", "g", "--host", "127.0.0.1", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert known(bootstrap) == sorted(
        [
            *(Acl(TOPIC, "t", "User:a", operation) for operation in (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)),
            *(Acl(ResourceType.TRANSACTIONAL_ID, "x", "User:a", operation) for operation in (Operation.WRITE, Operation.DESCRIBE)),
            *(Acl(TOPIC, "t", "User:b", operation, host="127.0.0.1") for operation in (Operation.READ, Operation.DESCRIBE)),
            Acl(ResourceType.GROUP, "g", "User:b", Operation.READ, host="127.0.0.1"),
        ]
    )


def test_users_and_topics_that_do_not_exist_are_warned_of(bootstrap: str) -> None:
    """Of users only where the cluster has SCRAM users: others come from elsewhere."""
    no_user = "warning: there is no SCRAM user {}: `ottla user add {}` makes one; of users by TLS certificates, OAuth"
    no_topic = "warning: there is no topic ordres yet, or it may not be seen; `ottla topic list` shows the topics"
    asked = ("acl", "allow", "User:alise", "User:alice", "User:*", "User:ANONYMOUS", "Group:x", "-o", "read", "--topic", "ordres")
    for yes in ((), ("--yes",)):
        done = ottla(bootstrap, *asked, "--topic", "*", "--topic", "orders", *yes)
        assert (done.returncode, no_topic in done.stderr, "SCRAM" in done.stderr) == (int(not yes), True, False), done.stderr
    with Admin(bootstrap) as admin:
        assert admin.create_topics([NewTopic("orders")]) == {"orders": None}
        assert set(admin.alter_users([UserChange("alice", "SCRAM-SHA-256", Secret("of-alice"))]).values()) == {None}
    for yes in ((), ("--yes",)):
        done = ottla(bootstrap, *asked, "--topic", "*", "--topic", "orders", *yes)
        warned = [line for line in done.stderr.splitlines() if "warning" in line]
        assert (len(warned), no_user.format("alise", "alise") in warned[0], no_topic in warned[1]) == (2, True, True), done.stderr
    assert ottla(bootstrap, "acl", "allow", "User:alice", "-o", "read", "--topic", "o", "--prefix", "--yes").stderr == ""


def test_a_deletion_that_matches_nothing_says_so(bootstrap: str) -> None:
    for yes in ((), ("--yes",)):
        done = ottla(bootstrap, "acl", "delete", "User:z", *yes)
        assert (done.returncode, "no ACL of User:z matches, and nothing was deleted; `ottla acl list" in done.stderr) == (1, True), (
            done.stderr
        )


@pytest.mark.slow
def test_acls_are_listed_by_what_they_cover_and_deleted_by_principal(bootstrap: str) -> None:
    for arguments in (
        ["allow", "User:a", "-o", "read", "--topic", "logs-", "--prefix"],
        ["deny", "User:a", "User:b", "-o", "all", "--topic", "logs-secret"],
        ["allow", "User:b", "-o", "alter-configs", "--cluster"],
        ["allow", "User:c", "-o", "create_tokens", "-o", "describe-tokens", "--user-principal", "User:alice"],
        ["allow", "User:c", "-o", "describe", "--delegation-token", "some-token"],
    ):
        assert ottla(bootstrap, "acl", *arguments, "--yes").returncode == 0
    assert [one for one in known(bootstrap) if one.principal == "User:c"] == [
        Acl(ResourceType.DELEGATION_TOKEN, "some-token", "User:c", Operation.DESCRIBE),
        Acl(ResourceType.USER, "User:alice", "User:c", Operation.CREATE_TOKENS),
        Acl(ResourceType.USER, "User:alice", "User:c", Operation.DESCRIBE_TOKENS),
    ]
    assert ottla(bootstrap, "acl", "delete", "User:c", "--yes").returncode == 0
    listed = items(ottla(bootstrap, "acl", "list", "--topic", "logs-secret", "--format", "json"))
    assert [(row["principal"], row["permission"], row["resource_name"], row["pattern_type"]) for row in listed] == [
        ("User:a", "allow", "logs-", "prefixed"),
        ("User:a", "deny", "logs-secret", "literal"),
        ("User:b", "deny", "logs-secret", "literal"),
    ]
    text = ottla(bootstrap, "acl", "list", "--principal", "User:b").stdout.splitlines()
    assert [line.split()[:5] for line in text[1:]] == [
        ["User:b", "deny", "all", "topic", "logs-secret"],
        ["User:b", "allow", "alter_configs", "cluster", CLUSTER],
    ]
    planned = ottla(bootstrap, "acl", "delete", "User:b", "--topic", "logs-secret")
    assert (planned.returncode, "would delete these; add --yes" in planned.stderr, len(known(bootstrap))) == (1, True, 4)
    assert ottla(bootstrap, "acl", "delete", "User:b", "--topic", "logs-secret", "--yes").returncode == 0
    assert ottla(bootstrap, "acl", "delete", "User:a", "--yes").returncode == 0
    assert known(bootstrap) == [Acl(ResourceType.CLUSTER, CLUSTER, "User:b", Operation.ALTER_CONFIGS)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["allow", "alice", "-o", "read", "--topic", "t"], "write User:alice"),
        (["allow", "User:a", "-o", "read"], "no resource"),
        (["allow", "User:a", "--topic", "t"], "--producer or --consumer"),
        (["deny", "User:a", "--topic", "t"], "no operation: give --operation"),
        (["allow", "User:a", "-o", "idempotent-write", "--topic", "t"], "is no operation on a topic; all, read"),
        (["allow", "User:a", "-o", "any", "--topic", "t"], "is no operation on a topic"),
        (["delete", "nobody"], "write User:nobody"),
    ],
)
def test_a_wrong_call_says_why(bootstrap: str, arguments: list[str], text: str) -> None:
    done = ottla(bootstrap, "acl", *arguments, "--yes")
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr


def test_a_broker_without_an_authorizer_says_so(tmp_path: Path) -> None:
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as thread:
        done = ottla(thread.bootstrap, "acl", "allow", "User:a", "-o", "read", "--topic", "t", "--yes")
    assert (done.returncode, "SECURITY_DISABLED" in done.stderr) == (1, True)
