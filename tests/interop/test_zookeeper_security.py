"""Apache Kafka 3.9's own tools over the znodes of rights and users: what ottla wrote they read, and what they write is in force at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.test_zookeeper_security import MECHANISM, OUT, GuardedCluster, by, topics_of
from tests.interop.tools import run
from tests.waiting import eventually

from ottla.client.admin import Acl, UserChange
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.sync import Admin, NewTopic
from ottla.types import Secret

FOREVER_MS = 4_000_000_000_000


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[GuardedCluster]:
    with GuardedCluster(tmp_path, zookeeper) as made:
        yield made


def acl_tool(java: list[str], cluster: GuardedCluster, *arguments: str) -> str:
    """What kafka-acls prints, which goes to ZooKeeper by Kafka's AclAuthorizer."""
    return run(*java, "kafka.admin.AclCommand", "--authorizer-properties", f"zookeeper.connect={cluster.servers}", *arguments)


ACLS = [
    Acl(ResourceType.TOPIC, "orders-", "User:ü a", Operation.DESCRIBE, pattern_type=PatternType.PREFIXED),
    Acl(ResourceType.TOPIC, "a:b", "User:alice", Operation.ALTER_CONFIGS, Permission.DENY, "10.0.0.1"),
    Acl(ResourceType.TOPIC, "*", "User:*", Operation.IDEMPOTENT_WRITE),
    Acl(ResourceType.GROUP, "g", "User:alice", Operation.ALL),
    Acl(ResourceType.CLUSTER, "kafka-cluster", "User:alice", Operation.CLUSTER_ACTION),
    Acl(ResourceType.TRANSACTIONAL_ID, "x", "User:alice", Operation.WRITE),
    Acl(ResourceType.DELEGATION_TOKEN, "id", "User:alice", Operation.DESCRIBE),
    Acl(ResourceType.USER, "User:bob", "User:alice", Operation.CREATE_TOKENS),
]


def test_kafka_acls_lists_what_ottla_wrote_and_its_changes_are_in_force(cluster: GuardedCluster, java_of_3_9: list[str]) -> None:
    with cluster.admin() as admin:
        assert set(admin.create_acls(ACLS).values()) == {None}
        assert admin.create_topics([NewTopic("t", 1, 3), NewTopic("p-1", 1, 3)]) == {"t": None, "p-1": None}
        assert admin.alter_users([UserChange("bob", MECHANISM, Secret("bob-secret"))]) == {"bob": None}
        listed = acl_tool(java_of_3_9, cluster, "--list")
        for one in ACLS:
            pattern = f"resourceType={one.resource_type.name}, name={one.resource_name}, patternType={one.pattern_type.name}"
            rule = f"principal={one.principal}, host={one.host}, operation={one.operation.name}, permissionType={one.permission.name}"
            assert pattern in listed, listed
            assert rule in listed, listed
        bob = ("--allow-principal", "User:bob", "--operation", "Describe")
        acl_tool(java_of_3_9, cluster, "--add", *bob, "--topic", "t")
        acl_tool(java_of_3_9, cluster, "--add", *bob, "--topic", "p-", "--resource-pattern-type", "prefixed")
        for node in cluster.nodes.values():
            eventually(lambda node=node: topics_of(node, "bob", "bob-secret"), lambda found: found == ["p-1", "t"])  # type: ignore[misc]
        more = Acl(ResourceType.TOPIC, "t", "User:carol", Operation.READ)
        assert admin.create_acls([more]) == {more: None}, "beside Kafka's own in one znode"
        acl_tool(java_of_3_9, cluster, "--remove", "--force", *bob, "--topic", "t")
        for node in cluster.nodes.values():
            eventually(lambda node=node: topics_of(node, "bob", "bob-secret"), lambda found: found == ["p-1"])  # type: ignore[misc]
        assert more in admin.describe_acls()
    assert not any("controller_resigns" in node.log() for node in cluster.nodes.values())


def test_kafka_configs_makes_users_and_describes_those_of_ottla(cluster: GuardedCluster, java_of_3_9: list[str]) -> None:
    def tool(*arguments: str) -> str:
        return run(*java_of_3_9, "kafka.admin.ConfigCommand", "--zookeeper", cluster.servers, "--entity-type", "users", *arguments)

    with cluster.admin() as admin:
        assert admin.alter_users([UserChange("a b*", MECHANISM, Secret("first"))]) == {"a b*": None}
        admin.alter_client_quotas({(("user", "a b*"),): {"consumer_byte_rate": 1000.0}})
    described = tool("--describe", "--entity-name", "a b*")
    assert re.search(rf"{MECHANISM}=salt=[^,]+,stored_key=[^,]+,server_key=[^,]+,iterations=4096", described), described
    tool("--alter", "--entity-name", "a b*", "--add-config", f"{MECHANISM}=[iterations=8192,password=second]")
    for node in cluster.nodes.values():
        eventually(lambda node=node: topics_of(node, "a b*", "second"), lambda found: found == [])  # type: ignore[misc]
        assert topics_of(node, "a b*", "first") == OUT
    with cluster.admin(2) as admin:
        assert admin.describe_users() == {"a b*": {MECHANISM: 8192}}
        assert admin.describe_client_quotas() == {(("user", "a b*"),): {"consumer_byte_rate": 1000.0}}
    tool("--alter", "--entity-name", "a b*", "--delete-config", MECHANISM)
    for node in cluster.nodes.values():
        eventually(lambda node=node: topics_of(node, "a b*", "second"), lambda found: found == OUT)  # type: ignore[misc]


def test_kafkas_client_reads_tokens_and_makes_some(cluster: GuardedCluster, java_of_3_9: list[str]) -> None:
    def znodes(*arguments: str) -> str:
        return run(*java_of_3_9, "interop.Znodes", cluster.servers, *arguments)

    with cluster.admin() as admin:
        assert admin.alter_users([UserChange("carol", MECHANISM, Secret("carol-secret"))]) == {"carol": None}
    eventually(lambda: topics_of(cluster.nodes[1], "carol", "carol-secret"), lambda found: found == [])
    with Admin(cluster.nodes[1].bootstrap, **by(MECHANISM, "carol", "carol-secret")) as carol:
        made = carol.create_token(renewers=["User:dan"])
        read = znodes("token", made.token_id)
        for part in ("owner=User:carol", "renewers=[User:dan]", f"tokenId='{made.token_id}'", f"maxTimestamp={made.max_ms}"):
            assert part in read, read
        znodes("put-token", "of-kafka", "User:carol", str(FOREVER_MS))
        found = eventually(lambda: {one.token_id: one for one in carol.describe_tokens()}, lambda tokens: "of-kafka" in tokens)
    theirs = found["of-kafka"]
    for node in cluster.nodes.values():  # its HMAC is that of the secret that all brokers have, Kafka's too
        eventually(lambda node=node: topics_of(node, "of-kafka", theirs.hmac.reveal(), tokenauth="true"), lambda seen: seen == [])  # type: ignore[misc]
