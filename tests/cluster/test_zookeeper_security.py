"""Who may what, in ZooKeeper mode: ACLs, SCRAM users and tokens that one broker takes hold at every other one, and outlive them all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker.certificates import Authority
from tests.broker.sasl import authenticate, authenticate_by_scram
from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.client.admin import Acl, AclFilter, DelegationToken, UserChange
from ottla.consensus.calls import Fetch, FetchSnapshot, SnapshotId
from ottla.consensus.wire_form import to_message
from ottla.coordination import Create, MultiFailedError, NoNodeError, NotAuthorizedError, Session
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.envelope import EnvelopeRequest
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.metadata import security_znodes, znodes
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.security.plain import plain_token
from ottla.security.scram import ScramMechanism
from ottla.sync import Admin, NewTopic, Producer
from ottla.types import Secret, uuid_bytes

JAAS: Final = "org.apache.kafka.common.security.{kind}Module required {options};"
NODE: Final = JAAS.format(
    kind="plain.PlainLogin", options='username="node" password="node-secret" user_node="node-secret" user_guest="guest"'
)
ADMIN: Final = JAAS.format(kind="plain.PlainLogin", options='user_admin="admin-secret"')
MECHANISM: Final = "SCRAM-SHA-256"


class GuardedCluster(ZookeeperCluster):
    """Brokers reach each other on INTERNAL, by PLAIN; clients come to CLIENTS. ``admin`` is a super user, and nobody else is there."""

    def __init__(self, directory: Path, server: ZooKeeperServer, count: int = 3, **properties: str) -> None:
        self.internal: dict[int, int] = {}
        super().__init__(directory, server, count, **properties)

    def _node(self, node: int, port: int, **properties: str) -> BrokerProcess:
        internal = self.internal[node] = lasting_ports(40 + node)[-1]
        given = {
            "listeners": f"CLIENTS://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal}",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
            "listener.name.internal.plain.sasl.jaas.config": NODE,
            "listener.name.clients.plain.sasl.jaas.config": ADMIN,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin;User:node",
            "delegation.token.secret.key": "the-secret-of-all-nodes",
            "delegation.token.expiry.check.interval.ms": "1000",
        }
        own = {key.replace("_", "."): value for key, value in self._properties.items()}
        return super()._node(node, port, **given | own | properties)

    def admin(self, node: int = 1) -> Admin:
        return Admin(self.nodes[node].bootstrap, **by("PLAIN", "admin", "admin-secret"))


def by(mechanism: str, user: str, password: str, **options: str) -> dict[str, Any]:
    kind = "plain.PlainLogin" if mechanism == "PLAIN" else "scram.ScramLogin"
    login = " ".join(f'{key}="{value}"' for key, value in ({"username": user, "password": password} | options).items())
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": JAAS.format(kind=kind, options=login),
    }


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[GuardedCluster]:
    with GuardedCluster(tmp_path, zookeeper) as made:
        yield made


def topics_of(node: BrokerProcess, user: str, password: str, **options: str) -> list[str] | ErrorCode:
    """What the user sees there; the error of one who is not let in."""
    with Admin(node.bootstrap, **by(MECHANISM, user, password, **options)) as admin:
        try:
            return sorted(admin.list_topics())
        except KafkaError as error:
            return ErrorCode(error.code)


OUT: Final = ErrorCode.SASL_AUTHENTICATION_FAILED
OF_ALICE: Final = Acl(ResourceType.TOPIC, "orders-", "User:alice", Operation.DESCRIBE, pattern_type=PatternType.PREFIXED)
NOT_THIS: Final = Acl(ResourceType.TOPIC, "orders-secret", "User:alice", Operation.ALL, Permission.DENY)


def test_rights_and_users_hold_everywhere_and_outlive_a_restart_and_controllers(cluster: GuardedCluster) -> None:
    names = ["orders-1", "orders-secret", "others"]
    with cluster.admin() as admin:
        assert admin.create_topics([NewTopic(name, 1, 3) for name in names]) == dict.fromkeys(names)
        assert admin.alter_users([UserChange("alice", MECHANISM, Secret("alice-secret"))]) == {"alice": None}
        impossible = Acl(ResourceType.GROUP, "a/b", "User:alice", Operation.READ)
        found = {acl: error and ErrorCode(error.code) for acl, error in admin.create_acls([OF_ALICE, impossible, NOT_THIS]).items()}
        assert found == {OF_ALICE: None, impossible: ErrorCode.INVALID_REQUEST, NOT_THIS: None}

    def holds() -> None:
        for node in cluster.nodes.values():
            eventually(lambda node=node: topics_of(node, "alice", "alice-secret"), lambda found: found == ["orders-1"])  # type: ignore[misc]
            assert topics_of(node, "alice", "another") == OUT
        with cluster.admin(2) as admin:
            assert sorted(admin.describe_acls()) == sorted([OF_ALICE, NOT_THIS])
            assert admin.describe_users() == {"alice": {MECHANISM: 4096}}

    holds()
    cluster.nodes[cluster.controller].restart()
    holds()
    cluster.kill_and_start_all()
    holds()
    controller = cluster.controller
    other = next(node for node in cluster.nodes if node != controller)
    cluster.nodes[controller].kill()
    with cluster.admin(other) as admin:
        [removed] = admin.delete_acls([AclFilter(principal="User:alice", permission=Permission.DENY)])
        assert removed == [NOT_THIS]
        assert topics_of(cluster.nodes[other], "alice", "alice-secret") == ["orders-1", "orders-secret"], (
            "there at once, where it was asked"
        )
        assert admin.alter_users([UserChange("alice", MECHANISM)]) == {"alice": None}
    cluster.nodes[controller].start()
    for node in cluster.nodes.values():
        eventually(lambda node=node: topics_of(node, "alice", "alice-secret"), lambda found: found == OUT)  # type: ignore[misc]
    assert cluster.names("/kafka-acl/Topic") == []
    assert cluster.names("/kafka-acl-extended/prefixed/Topic") == ["orders-"]
    assert cluster.get("/config/users/alice") == {"version": 1, "config": {}}


async def put(session: Session, path: str, data: bytes) -> None:
    try:
        await session.set(path, data, -1)
    except NoNodeError:
        await session.create(path, data)


async def notice(session: Session, prefix: str, data: bytes) -> None:
    await session.multi([Create(prefix, data, is_sequential=True)])


LITERAL = f"{security_znodes.LITERAL_CHANGES}/{security_znodes.ACL_CHANGE}"
T = "/kafka-acl/Topic/t"


def acls_json(**changed: Any) -> bytes:
    entry = {"principal": "User:bob", "permissionType": "Allow", "host": "*", "operation": "Describe"} | changed
    return json.dumps({"version": 1, "acls": [entry]}).encode()


def test_what_tools_write_is_taken_and_what_is_damaged_opens_nothing(cluster: GuardedCluster) -> None:
    salt = Secret("bob-secret")
    with cluster.admin() as admin:
        assert admin.create_topics([NewTopic("t", 1, 3)]) == {"t": None}
        assert admin.alter_users([UserChange("made", MECHANISM, salt)]) == {"made": None}
    credential = cluster.get("/config/users/made")["config"][MECHANISM]

    async def user(session: Session, text: str = credential) -> None:
        await put(session, "/config/users/bob", znodes.encode_config({MECHANISM: text}))
        await notice(session, znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("users/bob"))

    async def acls(session: Session, data: bytes) -> None:
        await put(session, T, data)
        await notice(session, LITERAL, b"TOPIC:t")

    def everywhere(wanted: list[str] | ErrorCode) -> None:
        for node in cluster.nodes.values():
            eventually(lambda node=node: topics_of(node, "bob", "bob-secret"), lambda found: found == wanted)  # type: ignore[misc]

    everywhere(OUT)
    cluster.ask(user)
    everywhere([])
    cluster.ask(lambda session: acls(session, acls_json()))
    everywhere(["t"])
    for damaged in (b"{", acls_json().replace(b'"version": 1', b'"version": 2'), acls_json(principal="bob"), acls_json(operation="Look")):
        cluster.ask(lambda session, damaged=damaged: acls(session, damaged))  # type: ignore[misc]
        everywhere([])
        cluster.ask(lambda session: acls(session, acls_json()))
        everywhere(["t"])
    cluster.ask(lambda session: session.delete(T))  # by hand, and another controller reads what is there
    cluster.nodes[cluster.controller].restart()
    everywhere([])
    cluster.ask(lambda session: notice(session, LITERAL, b"TOPIC:t"))  # before the data
    cluster.ask(lambda session: notice(session, LITERAL, b"nonsense"))
    with cluster.admin(2) as admin:
        assert admin.create_acls([Acl(ResourceType.TOPIC, "u", "User:bob", Operation.READ)]) != {}
    cluster.ask(lambda session: put(session, T, acls_json()))
    everywhere(["t"])
    cluster.ask(lambda session: user(session, credential.replace("4096", "12")))
    everywhere(OUT)
    logs = "".join(node.log() for node in cluster.nodes.values())
    assert "znode_not_understood" in logs
    assert "security_notice_unreadable" in logs
    assert credential[:60] not in logs


def test_a_token_of_one_broker_is_good_at_every_other_one(cluster: GuardedCluster) -> None:
    with cluster.admin() as admin:
        assert admin.alter_users([UserChange("carol", MECHANISM, Secret("carol-secret"))]) == {"carol": None}
        carol = {node: Admin(one.bootstrap, **by(MECHANISM, "carol", "carol-secret")) for node, one in cluster.nodes.items()}

    def seen(node: BrokerProcess, made: DelegationToken) -> list[str] | ErrorCode:
        return topics_of(node, made.token_id, made.hmac.reveal(), tokenauth="true")

    made = eventually(lambda: created(carol[2]), lambda found: found is not None)
    assert made is not None
    assert cluster.names(security_znodes.TOKENS) == [made.token_id]
    written = cluster.get(security_znodes.token_path(made.token_id))
    assert (written["owner"], written["version"]) == ("User%3Acarol", 3)
    assert made.hmac.reveal() not in json.dumps(written)
    for node in cluster.nodes.values():
        eventually(lambda node=node: seen(node, made), lambda found: found == [])  # type: ignore[misc]
    cluster.nodes[cluster.controller].restart()
    for node in cluster.nodes.values():
        assert seen(node, made) == []
    with carol[3] as other:
        other.expire_token(made.hmac)
    for node in cluster.nodes.values():
        eventually(lambda node=node: seen(node, made), lambda found: found == OUT)  # type: ignore[misc]
    assert cluster.names(security_znodes.TOKENS) == []
    assert created(carol[1], max_lifetime_ms=500) is not None
    eventually(lambda: cluster.names(security_znodes.TOKEN_CHANGES), lambda found: len(found) == 4)
    assert cluster.names(security_znodes.TOKENS) == [], "the controller has removed it"
    for admin in carol.values():
        admin.close()


def authenticated(client: RawClient, user: str, password: str) -> RawClient:
    assert not authenticate(client, plain_token(user, Secret(password))).error_code
    return client


def test_the_metadata_is_given_to_brokers_alone_and_on_their_own_listener(cluster: GuardedCluster) -> None:
    """It has the credentials of all users. A super user is a client like any other where clients are."""
    node, epoch = cluster.controller, cluster.epoch
    fetch, snapshot = Fetch(epoch, 7, 0, -1), FetchSnapshot(epoch, 7, SnapshotId(epoch, epoch << 32), 0, 1 << 20)
    envelope = EnvelopeRequest(b"", b"", bytes(4))
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for port, user, password in ((cluster.nodes[node].port, "admin", "admin-secret"), (cluster.internal[node], "guest", "guest")):
        with RawClient(port) as opened:
            client = authenticated(opened, user, password)
            answer = client.ask(to_message(fetch), 17)
            assert (answer.error_code, answer.responses) == (refused, [])
            answer = client.ask(to_message(snapshot), 1)
            assert (answer.error_code, answer.topics) == (refused, [])
            assert client.ask(envelope, 0).error_code == refused
    with RawClient(cluster.internal[node]) as opened:
        client = authenticated(opened, "node", "node-secret")
        assert client.ask(to_message(fetch), 17).error_code == 0
        assert client.ask(envelope, 0).error_code == ErrorCode.INVALID_REQUEST, "it was looked at"


def test_a_parked_fetch_is_asked_again_when_its_right_has_gone(cluster: GuardedCluster) -> None:
    with cluster.admin() as admin:
        assert admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        leader = admin.describe_topic("t").partitions[0].leader
        assert admin.alter_users([UserChange("dan", MECHANISM, Secret("dan-secret"))]) == {"dan": None}
        right = Acl(ResourceType.TOPIC, "t", "User:dan", Operation.READ)
        assert admin.create_acls([right]) == {right: None}
        topic_id = uuid_bytes(cluster.get("/brokers/topics/t")["topic_id"])
    node = cluster.nodes[leader]
    eventually(lambda: topics_of(node, "dan", "dan-secret"), lambda found: found == ["t"])
    with RawClient(node.port) as client:
        assert not authenticate_by_scram(client, "dan", "dan-secret", ScramMechanism.SHA_256).error_code
        wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])
        client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[wanted]), 13)
        other = next(number for number in cluster.nodes if number != leader)
        with cluster.admin(other) as admin:
            assert admin.delete_acls([AclFilter(principal="User:dan")]) == [[right]]
        eventually(lambda: topics_of(node, "dan", "dan-secret"), lambda found: found == [])
        with Producer(node.bootstrap, **by("PLAIN", "admin", "admin-secret")) as producer:
            producer.send("t", b"secret").result(30)
        [partition] = client.receive().responses[0].partitions
        assert (partition.error_code, bytes(partition.records or b"")) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


def test_brokers_know_each_other_by_certificates(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    authority = Authority(tmp_path / "certificates")
    own = authority.issue("node")
    protected = {
        "listener_security_protocol_map": "CLIENTS:SASL_PLAINTEXT,INTERNAL:SSL",
        "ssl_client_auth": "required",
        "ssl_keystore_location": str(own.store),
        "ssl_truststore_location": str(authority.trust),
        "ssl_principal_mapping_rules": "RULE:^.*CN=([^,]+).*$/$1/",
    }
    (tmp_path / "tls").mkdir()
    with GuardedCluster(tmp_path / "tls", zookeeper, 3, **protected) as cluster:
        with cluster.admin() as admin:
            assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
        cluster.nodes[cluster.controller].kill()
        for node in cluster.nodes.values():
            if not node.is_running:
                node.start()
        for partition in range(3):
            eventually(lambda partition=partition: cluster.state("t", partition)["isr"], lambda isr: len(isr) == 3)  # type: ignore[misc]


def created(admin: Admin, max_lifetime_ms: int = -1) -> DelegationToken | None:
    """None where the user is not known yet."""
    try:
        return admin.create_token(max_lifetime_ms=max_lifetime_ms)
    except KafkaError as error:
        if error.code != OUT:
            raise
        return None


def test_brokers_whose_right_is_an_acl_find_together_again(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """What they may do they read in ZooKeeper, each controller before it serves the first of them."""
    with GuardedCluster(tmp_path, zookeeper) as cluster:
        right = Acl(ResourceType.CLUSTER, "kafka-cluster", "User:node", Operation.CLUSTER_ACTION)
        with cluster.admin() as admin:
            assert admin.create_acls([right]) == {right: None}
            assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
        for node in cluster.nodes.values():
            node.properties["super.users"] = "User:admin"
        cluster.kill_and_start_all()
        cluster.nodes[cluster.controller].restart()
        for partition in range(3):
            eventually(lambda partition=partition: cluster.state("t", partition)["isr"], lambda isr: len(isr) == 3)  # type: ignore[misc]


def test_with_acls_of_zookeepers_own_others_change_no_rights_and_read_no_secrets(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    own = {"zookeeper_set_acl": "true", "ottla_zookeeper_credentials": "broker:secret"}
    with GuardedCluster(tmp_path, zookeeper, 1, **own) as cluster, cluster.admin() as admin:
        right = Acl(ResourceType.TOPIC, "t", "User:bob", Operation.READ)
        assert admin.create_acls([right]) == {right: None}
        assert admin.alter_users([UserChange("bob", MECHANISM, Secret("bob-secret"))]) == {"bob": None}
        with Admin(cluster.bootstrap, **by(MECHANISM, "bob", "bob-secret")) as bob:
            token_id = bob.create_token().token_id
        assert cluster.get(T)["acls"][0]["principal"] == "User:bob", "others may read it"
        for refused in (
            lambda session: session.set(T, b"", -1),
            lambda session: session.create("/kafka-acl/Topic/u", acls_json()),
            lambda session: notice(session, LITERAL, b"TOPIC:t"),
            lambda session: session.get("/config/users/bob"),
            lambda session: session.get(security_znodes.token_path(token_id)),
            lambda session: session.children(security_znodes.TOKENS),
        ):
            with pytest.raises((NotAuthorizedError, MultiFailedError)) as caught:
                cluster.ask(refused)
            error = caught.value
            assert isinstance(error.reason if isinstance(error, MultiFailedError) else error, NotAuthorizedError)
        assert admin.describe_acls() == [right]
