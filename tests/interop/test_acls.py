"""Kafka's own authorizer answers random questions as ours does, and Kafka's own tool creates, lists and removes ACLs here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from tests.broker.principals import STANDARD
from tests.foreign_clients.broker_process import BrokerProcess
from tests.interop.tools import HERE, run
from tests.security.test_authorizer import HOSTS, NAMES, drawn

from ottla.broker.authorization import AclAuthorizer
from ottla.config import BrokerConfig
from ottla.messages.acl_codes import OPERATIONS, Operation, ResourceType
from ottla.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.replay import replay
from ottla.runtime.world import real_world
from ottla.security.principal import Principal
from ottla.sync import Admin
from ottla.wire.schema import Stored

QUESTIONS: Final = 100_000
ASKERS: Final = ("User:alice", "User:bob", "User:ali", "Group:alice", "User:admin", "Group:admin")
ADDRESSES: Final = ("127.0.0.1", "127.0.0.2", "127.0.0.11", "::1", "2001:db8::ff")


class Asked:
    """One program of ACLs and questions, for both authorizers: the lines for Kafka's, and the answers of ours."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.answers: list[str] = []

    def program(self, rng: random.Random) -> None:
        everyone = rng.random() < 0.3
        self.lines.append(f"new\tUser:admin;User:root\t{str(everyone).lower()}")
        source = SimpleNamespace(committed=EMPTY_IMAGE)
        given = {
            "authorizer.class.name": STANDARD,
            "super.users": "User:admin;User:root",
            "allow.everyone.if.no.acl.found": str(everyone).lower(),
        }
        authorizer = AclAuthorizer(BrokerConfig(given), real_world().clock, source)
        rights = {(asker, host): authorizer.rights(Principal.parse(asker), host) for asker in ASKERS for host in ADDRESSES}
        for _ in range(6):
            source.committed = replay(source.committed, self._changes(rng, source.committed))
            for _ in range(QUESTIONS // 300):
                asker, host = rng.choice(ASKERS), rng.choice(ADDRESSES)
                resource_type = rng.choice([ResourceType.TOPIC, ResourceType.GROUP])
                operation = rng.choice(sorted(OPERATIONS[resource_type]))
                name = rng.choice([*NAMES, "zz", "abcd"])
                self.lines.append(f"may\t{asker}\t{host}\t{int(operation)}\t{int(resource_type)}\t{name}")
                self._answer(rights[asker, host].may(operation, resource_type, name))
                if rng.random() < 0.1:
                    wanted = Operation.WRITE if resource_type is ResourceType.TOPIC else Operation.READ
                    self.lines.append(f"any\t{asker}\t{host}\t{int(wanted)}\t{int(resource_type)}")
                    self._answer(rights[asker, host].may_anywhere(wanted, resource_type))

    def _answer(self, is_allowed: bool) -> None:
        self.answers.append(str(int(is_allowed)))

    def _changes(self, rng: random.Random, image: ClusterImage) -> list[Stored]:
        """One equal ACL is enough for Kafka's authorizer: it asserts that there is no second one."""
        gone = [acl_id for acl_id in image.acls if rng.random() < 0.3]
        self.lines += [f"gone\t{acl_id.hex()}" for acl_id in gone]
        there = {contents(acl) for acl_id, acl in image.acls.items() if acl_id not in gone}
        added = []
        for _ in range(rng.randrange(8)):
            acl = drawn(rng)
            if rng.random() < 0.2:
                acl.host = rng.choice(["0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:ff", *HOSTS])
            if contents(acl) not in there:
                there.add(contents(acl))
                added.append(acl)
                self.lines.append("\t".join(["acl", acl.id.hex(), *map(str, contents(acl))]))
        return [*(RemoveAccessControlEntryRecord(acl_id) for acl_id in gone), *added]


def contents(acl: AccessControlEntryRecord) -> tuple[object, ...]:
    numbers = int(acl.resource_type), acl.resource_name, int(acl.pattern_type)
    return *numbers, acl.principal, acl.host, int(acl.operation), int(acl.permission_type)


def test_kafkas_authorizer_answers_as_ours(java: list[str]) -> None:
    asked, rng = Asked(), random.Random(20261125)
    while len(asked.answers) < QUESTIONS:
        asked.program(rng)
    printed = run(*java, HERE / "java_authorizer" / "Ask.java", stdin="\n".join(asked.lines) + "\n", seconds_max=300)
    differences = [at for at, (kafkas, ours) in enumerate(zip(printed, asked.answers, strict=True)) if kafkas != ours]
    questions = [line for line in asked.lines if line.startswith(("may", "any"))]
    assert [(questions[at], printed[at]) for at in differences[:5]] == []
    assert 0.1 < asked.answers.count("1") / len(asked.answers) < 0.9


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, authorizer_class_name=STANDARD, super_users="User:ANONYMOUS") as process:
        yield process


def test_kafka_acls_creates_lists_and_removes(java: list[str], broker: BrokerProcess) -> None:
    def acls(*arguments: str) -> str:
        return run(*java, "org.apache.kafka.tools.AclCommand", "--bootstrap-server", broker.bootstrap, *arguments)

    added = acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders", "--transactional-id", "x")
    assert "Adding ACLs for resource" in added
    prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed")
    acls("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", *prefixed)
    acls("--add", "--allow-principal", "User:carol", "--consumer", "--topic", "*", "--group", "g")
    listed = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    for shown in (
        "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)",
        "ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)",
        "ResourcePattern(resourceType=TOPIC, name=*, patternType=LITERAL)",
        "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)",
        "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)",
    ):
        assert shown in listed
    acls("--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "orders", "--transactional-id", "x")
    acls("--remove", "--force", *prefixed)
    with Admin(broker.bootstrap) as admin:
        left = admin.describe_acls()
    assert {(acl.principal, acl.resource_name) for acl in left} == {("User:carol", "*"), ("User:carol", "g")}
