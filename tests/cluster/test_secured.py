"""Three nodes that reach each other, and their clients, over SASL_SSL alone: they form a cluster, and outlive a kill."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker.certificates import Authority
from tests.cluster.processes import CLUSTER_ID, NodeProcesses, format_
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.security.issuer import AUDIENCE, claims, key_set, signed
from tests.waiting import eventually

from ottla.broker.node import Broker
from ottla.client.admin import Broker as BrokerResource
from ottla.client.admin import DelegationToken
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.world import real_world
from ottla.sync import Admin, Consumer, NewTopic, Producer

MODULE: Final = "org.apache.kafka.common.security.{kind}Module required {options};"
PLAIN: Final = MODULE.format(
    kind="plain.PlainLogin", options='username="node" password="node-secret" user_node="node-secret" user_alice="alice-secret"'
)
SCRAM: Final = MODULE.format(kind="scram.ScramLogin", options='username="node" password="node-secret"')
COUNT: Final = 3


class SecuredNodes(NodeProcesses):
    """Brokers listen on INTERNAL, controllers on CONTROLLER; each speaks the protocol."""

    def __init__(self, directory: Path, protocol: str, *, only_controller: int | None = None, **more: str) -> None:
        self.authority = Authority(directory / "certificates")
        ports = lasting_ports(2 * COUNT)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(ports[COUNT:], 1))
        self.protocol = protocol
        self.nodes = {}
        for node in range(1, COUNT + 1):
            own = self.authority.issue(f"node-{node}")
            properties = {
                "process.roles": "broker,controller",
                "node.id": str(node),
                "listeners": f"INTERNAL://127.0.0.1:{ports[node - 1]},CONTROLLER://127.0.0.1:{ports[COUNT + node - 1]}",
                "listener.security.protocol.map": f"INTERNAL:{protocol},CONTROLLER:{protocol}",
                "inter.broker.listener.name": "INTERNAL",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "offsets.topic.replication.factor": "3",
            }
            if protocol.startswith("SASL"):
                properties |= {
                    "sasl.enabled.mechanisms": "PLAIN",
                    "sasl.mechanism.inter.broker.protocol": "PLAIN",
                    "sasl.mechanism.controller.protocol": "PLAIN",
                    "listener.name.internal.plain.sasl.jaas.config": PLAIN,
                    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
                    "listener.name.internal.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                    "delegation.token.secret.key": "the-secret-of-all-nodes",
                }
            if protocol.endswith("SSL"):
                properties |= {"ssl.keystore.location": str(own.store), "ssl.truststore.location": str(self.authority.trust)}
            if protocol == "SSL":
                properties["ssl.client.auth"] = "required"
            port = ports[node - 1]
            if node == only_controller:
                port = ports[COUNT + node - 1]
                properties |= {"process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{port}"}
            place = directory / f"node-{node}"
            place.mkdir()
            self.nodes[node] = made = BrokerProcess(place, port=port, **(properties | more))
            format_(made, CLUSTER_ID, {})

    @property
    def settings(self) -> dict[str, Any]:
        """Of alice, who is a client."""
        found: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl_truststore_location"] = str(self.authority.trust)
        if self.protocol == "SSL":
            found["ssl_keystore_location"] = str(self.authority.issue("alice").store)
        else:
            found |= {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
        return found


@pytest.fixture(params=["SASL_SSL", "SSL", "SASL_PLAINTEXT"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SecuredNodes]:
    with SecuredNodes(tmp_path, request.param) as nodes:
        yield nodes


def test_nodes_know_each_other_and_a_cluster_outlives_a_kill(cluster: SecuredNodes) -> None:
    with Admin(cluster.bootstrap, **cluster.settings) as admin:
        eventually(lambda: len(admin.describe_cluster().nodes), lambda count: count == COUNT)
        assert admin.create_topics([NewTopic("orders", 3, 3, {"min.insync.replicas": "2"})]) == {"orders": None}
        sent = [b"%d" % number for number in range(60)]
        with Producer(cluster.bootstrap, **cluster.settings) as producer:
            for number, value in enumerate(sent[:30]):
                producer.send("orders", value, partition=number % 3).result(60)
            cluster.nodes[admin.describe_quorum().leader_id].kill()
            for number, value in enumerate(sent[30:]):
                producer.send("orders", value, partition=number % 3).result(60)
        for node in cluster.nodes.values():
            if not node.is_running:
                node.start()
        in_sync = lambda: [len(found.in_sync) for found in admin.describe_topic("orders").partitions.values()]  # noqa: E731
        eventually(in_sync, lambda counts: counts == [3, 3, 3])
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest", group_id="g", **cluster.settings) as consumer:
        consumer.subscribe(["orders"])
        records = iter(consumer)
        assert sorted(int(next(records).value or b"") for _ in sent) == list(range(60))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNodes]:
    with SecuredNodes(tmp_path_factory.mktemp("guarded"), "SASL_PLAINTEXT") as nodes:
        yield nodes


def test_a_token_is_good_at_every_node_until_it_is_removed_at_one(guarded: SecuredNodes) -> None:
    def by_token(made: DelegationToken, node: BrokerProcess) -> bool:
        login = f'username="{made.token_id}" password="{made.hmac.reveal()}" tokenauth="true"'
        settings: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
        with Admin(node.bootstrap, **settings, sasl_jaas_config=MODULE.format(kind="scram.ScramLogin", options=login)) as admin:
            try:
                admin.list_topics()
                admin.create_topics([NewTopic(f"of-{node.bootstrap[-5:]}", 1)])  # which another node decides
            except KafkaError as error:
                if error.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                    raise
                return False
            with pytest.raises(KafkaError) as caught:
                admin.create_token()
            assert caught.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            return True

    nodes = list(guarded.nodes.values())
    for node, other in zip(nodes, [*nodes[1:], nodes[0]]):
        with Admin(node.bootstrap, **guarded.settings) as admin, Admin(other.bootstrap, **guarded.settings) as elsewhere:
            made = admin.create_token()
            for one in nodes:
                assert eventually(lambda one=one, made=made: by_token(made, one), bool)  # type: ignore[misc]
            elsewhere.expire_token(made.hmac)
            for one in nodes:
                assert not eventually(lambda one=one, made=made: by_token(made, one), lambda is_in: not is_in)  # type: ignore[misc]


def test_nodes_move_to_another_authority_under_load_and_one_that_restarts_joins_again(tmp_path: Path) -> None:
    with SecuredNodes(tmp_path, "SASL_SSL") as cluster:
        first, second = cluster.authority, Authority(tmp_path / "second", "second")
        settings = cluster.settings | {"ssl_truststore_certificates": first.pem + second.pem}
        del settings["ssl_truststore_location"]
        listeners = ("internal", "controller")

        def read_again(admin: Admin, store: str, path: Path, node: int) -> None:
            """The file at the same path is another one."""
            admin.alter_configs(
                {BrokerResource(node): {f"listener.name.{listener}.ssl.{store}.location": str(path) for listener in listeners}}
            )

        with Admin(cluster.bootstrap, **settings) as admin, Producer(cluster.bootstrap, **settings) as producer:
            eventually(lambda: len(admin.describe_cluster().nodes), lambda count: count == COUNT)
            admin.create_topics([NewTopic("orders", 3, 3, {"min.insync.replicas": "2"})])
            sent = []
            stores = {node: first.trust.parent / f"node-{node}.pem" for node in cluster.nodes}
            for phase in ("too early", "both are trusted", "keys", "the second alone is trusted"):
                if phase == "both are trusted":
                    first.trust.write_text(first.pem + second.pem)
                elif phase == "the second alone is trusted":
                    first.trust.write_text(second.pem)
                for node, store in stores.items():
                    sent += [producer.send("orders", b"%d" % number, partition=number % 3) for number in range(30)]
                    if "trusted" in phase:
                        read_again(admin, "truststore", first.trust, node)
                        continue
                    before = store.read_bytes()
                    store.write_bytes(second.issue(f"node-{node}").store.read_bytes())
                    if phase == "keys":
                        read_again(admin, "keystore", store, node)
                        continue
                    with pytest.raises(KafkaError, match="connections to it would fail") as caught:
                        read_again(admin, "keystore", store, node)
                    assert caught.value.code == ErrorCode.INVALID_REQUEST
                    store.write_bytes(before)
            for record in sent:
                record.result(60)
            cluster.nodes[2].kill()
            cluster.nodes[2].start()
            in_sync = lambda: [len(found.in_sync) for found in admin.describe_topic("orders").partitions.values()]  # noqa: E731
            eventually(in_sync, lambda counts: counts == [3, 3, 3])
        settings["ssl_truststore_certificates"] = first.pem
        with Admin(cluster.bootstrap, **settings) as admin, pytest.raises(KafkaError, match="certificate is refused"):
            admin.list_topics()


def test_nodes_know_each_other_by_tokens_and_one_with_a_strangers_is_not_let_in(tmp_path: Path) -> None:
    keys, module = tmp_path / "keys.json", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    keys.write_bytes(key_set())
    more = {
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "listener.name.internal.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.controller.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.internal.oauthbearer.sasl.jaas.config": module,
        "listener.name.controller.oauthbearer.sasl.jaas.config": module,
        "sasl.oauthbearer.jwks.endpoint.url": f"file:{keys}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.token.endpoint.url": f"file:{tmp_path}/token",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:alice",
    }
    token = tmp_path / "token"
    token.write_text(signed(claims(sub="node")) + "\n")
    with (
        SecuredNodes(tmp_path, "SASL_PLAINTEXT", only_controller=None, **more) as cluster,
        Admin(cluster.bootstrap, **cluster.settings) as admin,
    ):
        in_sync = lambda: [len(found.in_sync) for found in admin.describe_topic("orders").partitions.values()]  # noqa: E731
        assert admin.create_topics([NewTopic("orders", 1, 3)]) == {"orders": None}
        eventually(in_sync, lambda counts: counts == [3])
        cluster.nodes[2].kill()
        eventually(in_sync, lambda counts: counts == [2])  # the others have elected, for which they too read the file
        token.write_text(signed(claims(sub="node", aud="another-cluster")))
        cluster.nodes[2].spawn()
        eventually(lambda: cluster.nodes[2].log_file.read_text(), lambda text: "not_introduced" in text)
        assert in_sync() == [2]
        token.write_text(signed(claims(sub="node")))
        cluster.nodes[2].wait_until_ready()
        eventually(in_sync, lambda counts: counts == [3])
        written = "".join(node.log_file.read_text() for node in cluster.nodes.values())
        assert token.read_text() not in written


def test_a_controller_alone_takes_new_keys_and_refuses_bad_ones_while_it_runs(tmp_path: Path) -> None:
    with SecuredNodes(tmp_path, "SSL", only_controller=3) as cluster, Admin(cluster.nodes[1].bootstrap, **cluster.settings) as admin:
        alone = cluster.nodes[3]
        key = "listener.name.controller.ssl.keystore.location"
        store = cluster.authority.trust.parent / "node-3.pem"

        def presented() -> bytes:
            context = ssl.create_default_context(cafile=str(cluster.authority.trust))
            context.load_cert_chain(cluster.authority.issue("alice").store)
            with context.wrap_socket(socket.create_connection(("127.0.0.1", alone.port), 30), server_hostname="127.0.0.1") as found:
                return found.getpeercert(binary_form=True) or b""

        eventually(lambda: len(admin.describe_cluster().nodes), lambda count: count == COUNT - 1)
        first = presented()
        store.write_bytes(cluster.authority.issue("node-3", directory=tmp_path / "again").store.read_bytes())
        assert presented() == first, "nobody has said that the file is another one"
        admin.alter_configs({BrokerResource(3): {key: str(store)}})
        second = eventually(presented, lambda found: found != first)
        stranger = Authority(tmp_path / "second", "second").issue("node-3").store
        admin.alter_configs({BrokerResource(3): {key: str(stranger)}})
        eventually(alone.log, lambda text: "tls_stores_not_loaded" in text and "connections to it would fail" in text)
        assert presented() == second
        with pytest.raises(KafkaError) as caught:
            admin.alter_configs({BrokerResource(9): {key: str(store)}})
        assert caught.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        cluster.nodes[admin.describe_quorum().leader_id].kill()  # who is elected by the one that has new keys
        if not cluster.nodes[1].is_running:
            cluster.nodes[1].start()
        assert eventually(lambda: _created(admin), bool)


def test_nodes_change_their_password_without_a_restart(tmp_path: Path) -> None:
    """They went on with the password of their files, and when that was no longer good, each connection that ended was the last one."""
    with SecuredNodes(tmp_path, "SASL_PLAINTEXT") as cluster, Admin(cluster.bootstrap, **cluster.settings) as admin:
        eventually(lambda: len(admin.describe_cluster().nodes), lambda count: count == COUNT)
        admin.create_topics([NewTopic("orders", 3, 3)])

        def login(name: str, *known: str) -> str:
            users = " ".join(f'user_{user}="{user}-secret"' for user in (*known, "alice"))
            return MODULE.format(kind="plain.PlainLogin", options=f'username="{name}" password="{name}-secret" {users}')

        keys = [f"listener.name.{listener}.plain.sasl.jaas.config" for listener in ("internal", "controller")]
        for value in (login("node", "node", "newer"), login("newer", "node", "newer"), login("newer", "newer")):
            for node in cluster.nodes:
                admin.alter_configs({BrokerResource(node): dict.fromkeys(keys, value)})
        again = cluster.nodes[admin.describe_quorum().leader_id % COUNT + 1]
        again.properties.update(dict.fromkeys(keys, login("newer", "newer")))
        again.restart()
        in_sync = lambda: [len(found.in_sync) for found in admin.describe_topic("orders").partitions.values()]  # noqa: E731
        eventually(in_sync, lambda counts: counts == [3, 3, 3])
        assert all("the user is not known" not in node.log() for node in cluster.nodes.values())


def _created(admin: Admin) -> bool:
    try:
        return admin.create_topics([NewTopic("orders", 1)])["orders"] is None
    except KafkaError:
        return False


def test_a_node_that_is_not_let_in_says_so_and_does_not_join(tmp_path: Path) -> None:
    with SecuredNodes(tmp_path, "SASL_PLAINTEXT") as cluster:
        port = lasting_ports(1)[0]
        properties = dict(cluster.nodes[1].properties) | {
            "process.roles": "broker",
            "node.id": "9",
            "listeners": f"INTERNAL://127.0.0.1:{port}",
            "listener.name.controller.plain.sasl.jaas.config": PLAIN.replace('password="node-secret"', 'password="guessed"'),
        }
        place = tmp_path / "node-9"
        place.mkdir()
        stranger = BrokerProcess(place, port=port, **properties)
        format_(stranger, CLUSTER_ID, {})
        stranger.spawn()
        try:
            eventually(lambda: stranger.log_file.read_text(), lambda text: "not_introduced" in text)
            with Admin(cluster.bootstrap, **cluster.settings) as admin:
                assert {node.node_id for node in admin.describe_cluster(include_fenced=True).nodes} == {1, 2, 3}
        finally:
            stranger.kill()
        assert "guessed" not in stranger.log_file.read_text()


BETWEEN: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "INTERNAL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:1",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.internal.plain.sasl.jaas.config": PLAIN,
}
CONTROLLERS: Final = {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url of listener INTERNAL is not set"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "sasl.mechanism.inter.broker.protocol=GSSAPI is not supported"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "listener.name.internal.scram-sha-256.sasl.jaas.config is not set"),
        ({"listener.name.internal.plain.sasl.jaas.config": PLAIN.replace("username", "user_name")}, "username and password are expected"),
        ({"inter.broker.listener.name": "OTHER"}, "inter.broker.listener.name=OTHER is not one of the listeners INTERNAL"),
        ({"security.inter.broker.protocol": "SASL_PLAINTEXT"}, "exclude each other"),
        ({**CONTROLLERS}, "listener.name.controller.plain.sasl.jaas.config is not set"),
        (
            {**CONTROLLERS, "listener.name.controller.plain.sasl.jaas.config": PLAIN},
            "sasl.mechanism.controller.protocol=GSSAPI is not supported",
        ),
        (
            {**CONTROLLERS, "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "listener CONTROLLER of controllers offers SCRAM",
        ),
        ({"early.start.listeners": "controller,internal"}, "early.start.listeners=internal: a listener of clients opens when"),
        ({"early.start.listeners": "OTHER"}, "early.start.listeners=OTHER: listeners has none"),
        ({"listener.security.protocol.map": "INTERNAL:SSL,CONTROLLER:PLAINTEXT"}, "ssl.keystore.location is not set"),
    ],
)
def test_a_start_is_refused_where_nodes_could_not_authenticate_to_each_other(tmp_path: Path, given: dict[str, str], says: str) -> None:
    async def start() -> None:
        with pytest.raises(KafkaError) as caught:
            await Broker(real_world(), BrokerConfig({**BETWEEN, "log.dirs": str(tmp_path / "data"), **given})).start()
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert says in caught.value.message
        assert "node-secret" not in caught.value.message

    asyncio.run(start())
    assert not (tmp_path / "data").exists()
