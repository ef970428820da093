"""Apache Kafka 3.9's own client of ZooKeeper reads every znode of a cluster of ottla, and what it changes is in force at once.

A three-node ensemble: its leader is killed under a producer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.cluster.test_zookeeper import Load, everything, topic_config
from tests.foreign_clients.broker_process import lasting_ports
from tests.interop.tools import run
from tests.waiting import eventually

from ottla.coordination import Session
from ottla.errors import KafkaError
from ottla.runtime.zookeeper_server import ZooKeeperServer, four_letters
from ottla.sync import Admin, NewTopic

Kafkas = Callable[..., list[str]]
SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
"""What zookeeper-shell.sh runs."""


@pytest.fixture(scope="module")
def kafkas(java_of_3_9: list[str]) -> Kafkas:
    """Runs Kafka's client over a cluster's znodes; the lines that it prints."""
    return lambda cluster, *arguments: run(*java_of_3_9, "interop.Znodes", cluster.servers, *arguments).splitlines()


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[ZookeeperCluster]:
    with ZookeeperCluster(tmp_path, zookeeper, broker_rack="r1") as made:
        yield made


def test_kafkas_decoders_read_every_znode(cluster: ZookeeperCluster, kafkas: Kafkas) -> None:
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 13, 3, configs={"retention.ms": "5000000", "cleanup.policy": "compact"})]) == {"t": None}
        admin.alter_client_quotas({(("user", "a b"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5}})
        described = admin.describe_topic("t")
    lines = dict(line.split(": ", 1) for line in kafkas(cluster, "read"))
    assert lines["controller"] == str(cluster.controller)
    assert lines["controller epoch"] == str(cluster.epoch)
    for node in cluster.nodes.values():
        assert f"PLAINTEXT://{node.bootstrap} rack r1" in lines.values()
    for index, partition in described.partitions.items():
        line = lines[f"partition t-{index}"]
        found = re.fullmatch(r"(\[.*\]) leader (\d) epoch 0 isr (\[.*\]) partition epoch 0 controller epoch \d+", line)
        assert found is not None, line
        assert (found[1], int(found[2])) == (str(list(partition.replicas)), partition.leader)
    assert lines["config of t"] == "{cleanup.policy=compact, retention.ms=5000000}"
    assert lines["config of user a b"] == "{producer_byte_rate=1000, request_percentage=12.5}"


def test_the_zookeeper_shell_of_kafka_shows_every_znode(cluster: ZookeeperCluster, java_of_3_9: list[str]) -> None:
    """``ls -R /`` and ``get`` of each, in one session of the shell: the tree and the data are those that another client reads."""
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 2, 3, configs={"retention.ms": "5000000"})]) == {"t": None}
    tree = cluster.ask(tree_of)
    brokers = {f"/brokers/ids/{node}" for node in cluster.nodes}
    states = {f"/brokers/topics/t/partitions/{index}/state" for index in range(2)}
    assert {*brokers, *states, "/controller", "/controller_epoch", "/cluster/id", "/config/topics/t", "/brokers/seqid"} <= tree.keys()
    commands = ["ls -R /", *(f"get {path}" for path in sorted(tree))]
    printed = run(*java_of_3_9, SHELL, "-server", cluster.servers, stdin="\n".join([*commands, "quit", ""]))
    lines = printed.split("state:SyncConnected type:None path:null\n", 1)[1].split("\n\nWATCHER::", 1)[0].split("\n")
    assert sorted(lines[: len(tree)]) == sorted(tree)
    shown = dict(zip(sorted(tree), lines[len(tree) :], strict=False))
    assert shown == {path: data.decode() for path, data in tree.items()}
    assert json.loads(shown["/controller"])["brokerid"] == cluster.controller
    assert run(*java_of_3_9, SHELL, "-server", cluster.servers, "ls", "/brokers/ids").splitlines()[-1] == "[1, 2, 3]"


async def tree_of(session: Session, root: str = "/") -> dict[str, bytes]:
    """Every znode below the root, and what is in it."""
    found = {root: (await session.get(root))[0]}
    for name in await session.children(root):
        found |= await tree_of(session, f"{root.rstrip('/')}/{name}")
    return found


def test_what_kafkas_tools_change_is_in_force_at_once(cluster: ZookeeperCluster, kafkas: Kafkas) -> None:
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 1, 3)]) == {"t": None}
        kafkas(cluster, "config", "topics/t", "retention.ms=7000000")
        eventually(lambda: topic_config(admin, "t", "retention.ms"), lambda found: found == "7000000")
        kafkas(cluster, "config", "brokers/", "log.flush.interval.messages=77")
        eventually(lambda: topic_config(admin, "t", "flush.messages"), lambda found: found == "77")
        kafkas(cluster, "config", "clients/c", "consumer_byte_rate=500")
        eventually(admin.describe_client_quotas, lambda found: found == {(("client-id", "c"),): {"consumer_byte_rate": 500.0}})
        kafkas(cluster, "config", "topics/t")
        eventually(lambda: topic_config(admin, "t", "retention.ms"), lambda found: found != "7000000")


def test_the_leader_of_an_ensemble_is_killed(tmp_path: Path) -> None:
    ports = lasting_ports(20)[10:]  # the brokers get the first that are free, and a follower does not bind all of its own
    lines = [f"server.{number}=127.0.0.1:{ports[2 + number]}:{ports[5 + number]}" for number in (1, 2, 3)]
    servers = {}
    for number in (1, 2, 3):
        directory = tmp_path / f"zookeeper-{number}"
        directory.mkdir()
        servers[number] = ZooKeeperServer(directory, ports[number - 1], server_id=number, others=lines)
    try:
        for server in servers.values():
            server.spawn()
        for server in servers.values():
            server.wait_until_it_serves()
        (tmp_path / "cluster").mkdir()
        addresses = ",".join(server.address for server in servers.values())
        with ZookeeperCluster(tmp_path / "cluster", servers[1], servers=addresses) as cluster:
            with Admin(cluster.bootstrap) as admin:
                assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
            with Load(cluster.bootstrap, "t") as load:
                load.wait_for_more()
                next(server for server in servers.values() if leads(server)).kill()
                load.wait_for_more()
                with Admin(cluster.bootstrap, request_timeout_ms=60_000) as admin:
                    eventually(lambda: code_of(admin.create_topics([NewTopic("later", 1, 1)])["later"]), lambda code: code in (0, 36))
                load.wait_for_more()
            assert not load.failed
            everything(cluster.bootstrap, "t", load.acknowledged)
    finally:
        for server in servers.values():
            server.kill()


def leads(server: ZooKeeperServer) -> bool:
    return "Mode: leader" in four_letters("127.0.0.1", server.port, "srvr")


def code_of(error: KafkaError | None) -> int:
    """36 where an earlier request, which was not answered, has created the topic."""
    return 0 if error is None else error.code
