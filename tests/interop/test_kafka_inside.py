"""An Apache Kafka 4.3 broker as one of the brokers of an ottla cluster: it registers, leads, follows, dies and returns.

The controllers are ottla's; Kafka's broker follows their metadata log, and shares every partition with one of ottla's brokers: each of the
two fetches from the other one, and asks the controller for the other one's place in the ISR.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType, TracebackType

import pytest
from bench.peers import Kafka
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import in_sync, leaders, logged, produce, stored, stored_end, wait_for_in_sync, wait_for_leader
from tests.foreign_clients.broker_process import lasting_port
from tests.interop.shared_partitions import Records, Transacted, let_its_fetch_end
from tests.waiting import eventually

from ottla.controller.metadata_versions import level_of
from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

KAFKA = 9
SHARED = {0: [1, KAFKA], 1: [KAFKA, 2], 2: [KAFKA, 3]}


class KafkaInside(Kafka):
    """Its cluster's id is that which Kafka's tools format it with: ``CLUSTER_ID``."""

    def __init__(self, cluster: ClusterProcesses, **lines_more: str) -> None:
        super().__init__()
        self._cluster = cluster
        self.address = ("127.0.0.1", lasting_port())
        lines = {
            "process.roles": "broker",
            "node.id": str(KAFKA),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.address[1]}",
            "controller.quorum.voters": cluster.voters,
        } | lines_more
        with self._config.open("a") as config:  # the last of two lines counts
            config.write("".join(f"{key}={value}\n" for key, value in lines.items()))

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def wait_until_ready(self) -> None:
        """The controllers have unfenced it."""
        with Admin(self._cluster.bootstrap) as admin:
            eventually(lambda: {node.node_id for node in admin.describe_cluster().nodes}, lambda found: KAFKA in found)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        assert self._process is not None, "the process was started"
        self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.is_running():
            self.kill()
        self._directory.cleanup()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, offsets_topic_replication_factor="3") as started:
        yield started


@pytest.fixture
def kafka_inside(cluster: ClusterProcesses) -> Iterator[KafkaInside]:
    assert Kafka.why_not() is None, Kafka.why_not()
    with KafkaInside(cluster) as started:
        yield started


class ClusterOf39(ClusterProcesses):
    features = MappingProxyType({"metadata.version": level_of("3.9")})


class OldKafkaInside(KafkaInside):
    """Of Kafka 3.9, whose brokers read records in the versions of that release alone."""

    def __init__(self, cluster: ClusterProcesses, libraries: str) -> None:
        super().__init__(cluster)
        self._libraries = libraries

    def _java(self, *arguments: str, heap: str = "256m") -> list[str]:
        return ["java", f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC", "-cp", self._libraries, *arguments]


def test_a_kafka_3_9_broker_joins_a_cluster_of_that_level(tmp_path: Path, java_of_3_9: list[str]) -> None:
    with ClusterOf39(tmp_path) as cluster, OldKafkaInside(cluster, java_of_3_9[-1]) as kafka:
        records = Records(cluster.bootstrap, len(SHARED))
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", assignments=SHARED)]) == {"t": None}
            eventually(lambda: leaders(admin, "t"), lambda found: found == [1, KAFKA, KAFKA])
            records.send(*SHARED)
            records.assert_read()
            assert_logs_are_equal(records, cluster, kafka)
            cluster.nodes[2].restart()
            wait_for_in_sync(admin, "t", {KAFKA, 2}, 1)
            kafka.stop()
            eventually(lambda: leaders(admin, "t"), lambda found: found == [1, 2, 3])
            records.send(*SHARED)
            records.assert_read()


def assert_logs_are_equal(records: Records, cluster: ClusterProcesses, kafka: KafkaInside) -> None:
    """Of each partition, in its two brokers."""
    for index, replicas in SHARED.items():
        [own] = [node for node in replicas if node != KAFKA]
        records.assert_equal(index, cluster.nodes[own].data, kafka.data)


def test_a_kafka_broker_leads_follows_dies_and_returns_as_one_of_the_cluster(cluster: ClusterProcesses, kafka_inside: KafkaInside) -> None:
    records = Records(cluster.bootstrap, len(SHARED))
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", assignments=SHARED, configs={"min.insync.replicas": "1"})]) == {"t": None}
        eventually(lambda: leaders(admin, "t"), lambda found: found == [1, KAFKA, KAFKA])
        records.send(*SHARED)
        records.assert_read()
        assert_logs_are_equal(records, cluster, kafka_inside)
        assert [in_sync(admin, "t", index) for index in SHARED] == [{1, KAFKA}, {KAFKA, 2}, {KAFKA, 3}]

        # ottla's leader dies with records that Kafka does not have: Kafka leads, and ottla cuts them when it returns.
        let_its_fetch_end(lambda: kafka_inside.send_signal(signal.SIGSTOP))
        assert not produce(cluster, 1, "t", b"lost", b"lost, too", acks=1).error_code
        cluster.nodes[1].kill()
        kafka_inside.send_signal(signal.SIGCONT)
        wait_for_leader(admin, "t", KAFKA)
        records.send(0)
        cluster.nodes[1].start()
        wait_for_in_sync(admin, "t", {1, KAFKA})
        assert [cut["partition"] for cut in logged(cluster, "replica_truncated") if cut["end_offset"] < cut["was"]] == ["t-0"]
        records.assert_read()
        assert_logs_are_equal(records, cluster, kafka_inside)

        # Kafka's leader dies with records that ottla does not have: ottla leads, and Kafka cuts them when it returns.
        let_its_fetch_end(lambda: cluster.nodes[2].send_signal(signal.SIGSTOP))
        with Producer(kafka_inside.bootstrap, acks=1, enable_idempotence=False) as producer:
            assert producer.send("t", b"lost", partition=1).result(20).offset >= 0
        kafka_inside.kill()
        cluster.nodes[2].send_signal(signal.SIGCONT)
        wait_for_leader(admin, "t", 2, index=1)
        wait_for_leader(admin, "t", 3, index=2)
        records.send(*SHARED)
        kafka_inside.start()
        for index, replicas in SHARED.items():
            wait_for_in_sync(admin, "t", set(replicas), index)
        records.assert_read()
        assert_logs_are_equal(records, cluster, kafka_inside)

        # Preferred leaders return to Kafka's broker, and it hands them over when it is stopped in order.
        admin.elect_leaders()
        eventually(lambda: leaders(admin, "t"), lambda found: found == [1, KAFKA, KAFKA])
        records.send(*SHARED)
        kafka_inside.stop()
        eventually(lambda: leaders(admin, "t"), lambda found: found == [1, 2, 3])
        assert logged(cluster, "broker_fenced")[-1]["reason"] == "it asked for it"
        records.send(*SHARED)
        records.assert_read()


def test_transactions_over_brokers_of_both_kinds(tmp_path: Path) -> None:
    """At level 2: coordinators, partitions and groups on either; each dies in turn, and loads what the other has written."""
    internal = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    topics = [NewTopic(name, assignments=SHARED, configs=internal) for name in (TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC)]
    names = ("t", TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC)
    sizes = dict.fromkeys(("transaction.state.log.num.partitions", "offsets.topic.num.partitions"), str(len(SHARED)))
    with ClusterProcesses(tmp_path) as cluster, KafkaInside(cluster, **sizes) as kafka, Admin(cluster.bootstrap) as admin:
        created = admin.create_topics([*topics, NewTopic("t", assignments=SHARED, configs={"min.insync.replicas": "1"})])
        assert set(created.values()) == {None}

        def all_at_home() -> None:
            for name in names:
                for index, replicas in SHARED.items():
                    wait_for_in_sync(admin, name, set(replicas), index)
            admin.elect_leaders()
            for name in names:
                eventually(lambda name=name: leaders(admin, name), lambda found: found == [1, KAFKA, KAFKA])  # type: ignore[misc]

        all_at_home()
        transacted = Transacted(cluster.bootstrap, len(SHARED))
        transacted.some(0)
        transacted.some(1)
        transacted.assert_read()
        kafka.kill()
        for name in names:
            eventually(lambda name=name: leaders(admin, name), lambda found: found == [1, 2, 3])  # type: ignore[misc]
        transacted.some(2)
        transacted.assert_read()
        kafka.start()
        kafka.wait_until_ready()
        all_at_home()
        cluster.nodes[1].kill()
        for name in names:
            wait_for_leader(admin, name, KAFKA)
        transacted.some(3)
        transacted.assert_read()
        cluster.nodes[1].start()
        all_at_home()
        transacted.some(4)
        transacted.assert_read()
        with Consumer(cluster.bootstrap) as consumer:
            ends = consumer.end_offsets([TopicPartition("t", index) for index in SHARED])
        for key, end in ends.items():
            [own] = [node for node in SHARED[key.partition] if node != KAFKA]
            directories = [data / f"t-{key.partition}" for data in (cluster.nodes[own].data, kafka.data)]
            for directory in directories:
                eventually(lambda directory=directory: stored_end(directory), lambda found, end=end: found >= end)  # type: ignore[misc]
            assert stored(directories[0], end) == stored(directories[1], end) != b""
