"""An ottla broker as one of the brokers of an Apache Kafka 4.3 cluster: it registers, leads, follows, dies and returns.

Kafka's node is controller and broker. The cluster is formatted without the features that ottla's brokers do not have yet (groups of
KIP-848, share groups, streams groups): its controller refuses brokers that do not support what the cluster has.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import Kafka
from tests.cluster.processes import CLUSTER_ID, format_
from tests.cluster.replicas import in_sync, leaders, stored, stored_end, wait_for_in_sync, wait_for_leader
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.claims import Claims, new_member, poll_until
from tests.interop.shared_partitions import Records, Transacted, let_its_fetch_end
from tests.waiting import eventually

from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

KAFKA, OURS = 1, 9
SHARED = {0: [KAFKA, OURS], 1: [OURS, KAFKA]}
WITHOUT = ("share.version", "streams.version")


class KafkaCluster(Kafka):
    """One node, whose id is ``KAFKA``; ``without`` are the features that it is formatted without."""

    def __init__(self, *without: str, **lines_more: str) -> None:
        super().__init__()
        self._without = without
        port, self.controller_port = lasting_ports(2)
        self.address = ("127.0.0.1", port)
        lines = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.quorum.voters": f"{KAFKA}@127.0.0.1:{self.controller_port}",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        } | lines_more
        with self._config.open("a") as config:  # the last of two lines counts
            config.write("".join(f"{key}={value}\n" for key, value in lines.items()))

    def _java(self, *arguments: str, heap: str = "256m") -> list[str]:
        features = [word for name in self._without for word in ("--feature", f"{name}=0")] if "format" in arguments else []
        return super()._java(*arguments, *features, heap=heap)

    def run(self, tool: str, *arguments: str, by_controller: bool = False) -> None:
        """One of Kafka's tools, on this cluster."""
        where = ("--bootstrap-controller", f"127.0.0.1:{self.controller_port}") if by_controller else ("--bootstrap-server", self.bootstrap)
        subprocess.run(self._java(tool, *where, *arguments), check=True, stdout=subprocess.DEVNULL, timeout=60)

    def broker_inside(self, directory: Path, **settings: str) -> BrokerProcess:
        made = BrokerProcess(
            directory,
            port=lasting_ports(3)[-1],
            node_id=str(OURS),
            process_roles="broker",
            controller_quorum_voters=f"{KAFKA}@127.0.0.1:{self.controller_port}",
            controller_listener_names="CONTROLLER",
            broker_heartbeat_interval_ms="500",
            **settings,
        )
        format_(made, CLUSTER_ID)
        return made


@pytest.fixture
def kafka_cluster() -> Iterator[KafkaCluster]:
    assert Kafka.why_not() is None, Kafka.why_not()
    with KafkaCluster(*WITHOUT) as started:
        yield started


def test_an_ottla_broker_leads_follows_dies_and_returns_in_a_kafka_cluster(tmp_path: Path, kafka_cluster: KafkaCluster) -> None:
    kafka, records = kafka_cluster, Records(kafka_cluster.bootstrap, len(SHARED))
    with kafka.broker_inside(tmp_path) as ours, Admin(kafka.bootstrap) as admin:
        eventually(lambda: {node.node_id for node in admin.describe_cluster().nodes}, lambda found: found == {KAFKA, OURS})
        assert admin.create_topics([NewTopic("t", assignments=SHARED)]) == {"t": None}
        eventually(lambda: leaders(admin, "t"), lambda found: found == [KAFKA, OURS])
        records.send(*SHARED)
        records.assert_read()
        for index in SHARED:
            records.assert_equal(index, ours.data, kafka.directory / "data")
        assert [in_sync(admin, "t", index) for index in SHARED] == [{KAFKA, OURS}] * 2

        # Our leader dies with records that Kafka does not have: Kafka leads when the session has ended, and we cut them when we return.
        let_its_fetch_end(lambda: os.kill(kafka.pid, signal.SIGSTOP))
        with Producer(ours.bootstrap, acks=1, enable_idempotence=False) as producer:
            assert producer.send("t", b"lost", partition=1).result(20).offset >= 0
            ours.kill()
        os.kill(kafka.pid, signal.SIGCONT)
        wait_for_leader(admin, "t", KAFKA, index=1)
        records.send(*SHARED)
        ours.start()
        for index in SHARED:
            wait_for_in_sync(admin, "t", {KAFKA, OURS}, index)
        assert any("replica_truncated" in line and "'t-1'" in line.replace('"', "'") for line in ours.log().splitlines())
        records.assert_read()
        for index in SHARED:
            records.assert_equal(index, ours.data, kafka.directory / "data")

        # We lead again, and hand over when we are stopped in order.
        admin.elect_leaders()
        eventually(lambda: leaders(admin, "t"), lambda found: found == [KAFKA, OURS])
        records.send(*SHARED)
        ours.stop()
        assert leaders(admin, "t") == [KAFKA, KAFKA]
        records.send(*SHARED)
        records.assert_read()


def test_transactions_over_brokers_of_both_kinds(tmp_path: Path) -> None:
    """At level 2: coordinators, partitions and groups on either; ours dies and returns, and loads what Kafka's has written."""
    sizes = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
    internal = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    with KafkaCluster(*WITHOUT, **sizes) as kafka, kafka.broker_inside(tmp_path) as ours, Admin(kafka.bootstrap) as admin:
        eventually(lambda: {node.node_id for node in admin.describe_cluster().nodes}, lambda found: found == {KAFKA, OURS})
        topics = [NewTopic(name, assignments=SHARED, configs=internal) for name in (TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC)]
        created = admin.create_topics([*topics, NewTopic("t", assignments=SHARED)])
        assert created == {TRANSACTION_STATE_TOPIC: None, GROUP_METADATA_TOPIC: None, "t": None}
        eventually(lambda: leaders(admin, "t"), lambda found: found == [KAFKA, OURS])
        transacted = Transacted(kafka.bootstrap, len(SHARED))
        for number in range(4):
            transacted.some(number)
        transacted.assert_read()
        ours.kill()
        for name in ("t", TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC):
            wait_for_leader(admin, name, KAFKA, index=1)
        transacted.some(4)
        ours.start()
        for name in ("t", TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC):
            for index in SHARED:
                wait_for_in_sync(admin, name, {KAFKA, OURS}, index)
        admin.elect_leaders()
        eventually(lambda: leaders(admin, TRANSACTION_STATE_TOPIC), lambda found: found == [KAFKA, OURS])
        for number in range(5, 8):
            transacted.some(number)
        transacted.assert_read()
        with Consumer(kafka.bootstrap) as consumer:
            for key, end in consumer.end_offsets([TopicPartition("t", index) for index in SHARED]).items():
                directories = [directory / f"t-{key.partition}" for directory in (ours.data, kafka.directory / "data")]
                for directory in directories:
                    eventually(lambda directory=directory: stored_end(directory), lambda found, end=end: found >= end)  # type: ignore[misc]
                assert stored(directories[0], end) == stored(directories[1], end) != b""


def test_users_and_acls_of_the_cluster_are_kept_and_end_no_broker(tmp_path: Path) -> None:
    """Nothing of them is enforced by ottla; a broker has them in its log and its snapshots, and starts with them."""
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    user = ("--entity-type", "users", "--entity-name", "alice", "--alter")
    acl = ("--allow-principal", "User:alice", "--operation", "read", "--topic", "t", "--force")
    with KafkaCluster(*WITHOUT, **authorizer) as kafka, Admin(kafka.bootstrap) as admin:
        kafka.run("kafka.admin.ConfigCommand", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
        with kafka.broker_inside(tmp_path) as ours:
            eventually(lambda: {node.node_id for node in admin.describe_cluster().nodes}, lambda found: found == {KAFKA, OURS})
            kafka.run("org.apache.kafka.tools.AclCommand", "--add", *acl, by_controller=True)
            assert admin.create_topics([NewTopic("t", assignments=SHARED)]) == {"t": None}
            eventually(lambda: leaders(admin, "t"), lambda found: found == [KAFKA, OURS])
            ours.stop()
            kafka.run("kafka.admin.ConfigCommand", *user, "--delete-config", "SCRAM-SHA-256")
            ours.start()
            wait_for_in_sync(admin, "t", {KAFKA, OURS}, 0)
            wait_for_in_sync(admin, "t", {KAFKA, OURS}, 1)
            kafka.run("org.apache.kafka.tools.AclCommand", "--remove", *acl, by_controller=True)
            ours.restart()
            wait_for_in_sync(admin, "t", {KAFKA, OURS}, 1)


def test_a_consumer_group_over_coordinators_of_both_kinds(tmp_path: Path) -> None:
    """KIP-848: members join at ours, go on at Kafka's, which loads our records, and lets one more in; then at ours, which loads Kafka's."""
    settings = {
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
    }
    own = {key.replace(".", "_"): value for key, value in settings.items()}
    with (
        KafkaCluster(*WITHOUT, **settings, **{"offsets.topic.num.partitions": "1"}) as kafka,
        kafka.broker_inside(tmp_path, **own) as ours,
        Admin(kafka.bootstrap) as admin,
    ):
        eventually(lambda: {node.node_id for node in admin.describe_cluster().nodes}, lambda found: found == {KAFKA, OURS})
        internal = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
        group_topic = NewTopic(GROUP_METADATA_TOPIC, assignments={0: [OURS, KAFKA]}, configs=internal)
        created = admin.create_topics([group_topic, NewTopic("t", assignments={index: [KAFKA] for index in range(6)})])
        assert created == {GROUP_METADATA_TOPIC: None, "t": None}
        eventually(lambda: leaders(admin, GROUP_METADATA_TOPIC), lambda found: found == [OURS])
        claims = Claims()
        members = [new_member(kafka, "t", "g", claims, "consumer-uniform") for _ in range(2)]

        def share(*sizes: int) -> None:
            poll_until(members, lambda: sorted(len(member.share) for member in members) == list(sizes))

        def shown() -> tuple[str, str, int]:
            found = admin.describe_group("g")
            return found.type, found.state, len(found.members)

        share(3, 3)
        assert shown() == ("consumer", "Stable", 2)
        kept = [set(member.share) for member in members]
        ours.stop()
        wait_for_leader(admin, GROUP_METADATA_TOPIC, KAFKA, index=0)
        eventually(shown, lambda found: found == ("consumer", "Stable", 2))
        members.append(new_member(kafka, "t", "g", claims, "consumer-uniform"))
        share(2, 2, 2)
        assert all(member.share < before for member, before in zip(members, kept, strict=False)), "Kafka kept what they had"
        kept = [set(member.share) for member in members]
        ours.start()
        wait_for_in_sync(admin, GROUP_METADATA_TOPIC, {KAFKA, OURS}, 0)
        admin.elect_leaders()
        eventually(lambda: leaders(admin, GROUP_METADATA_TOPIC), lambda found: found == [OURS])
        members.pop().leave()
        share(3, 3)
        assert all(member.share > before for member, before in zip(members, kept, strict=False)), "ours kept what they had"
        for member in members:
            member.leave()
        assert not claims.owners


def test_a_cluster_with_features_that_ottla_does_not_have_refuses_its_broker(tmp_path: Path) -> None:
    """Kafka's defaults: this is how far a broker comes there."""
    with (
        KafkaCluster() as kafka,
        pytest.raises(
            RuntimeError,
            match=r"UNSUPPORTED_VERSION: the controller refuses this broker: the cluster has (share|streams)\.version at level 1",
        ),
    ):
        kafka.broker_inside(tmp_path).start()
