"""Mechanisms of the classic description of Kafka that take several brokers to show."""

from __future__ import annotations

import signal
from pathlib import Path

import confluent_kafka
import pytest
from tests.cluster.processes import CLUSTER_ID, ClusterProcesses, format_, quorum_only
from tests.cluster.proxy import Proxy
from tests.cluster.replicas import create, wait_for_in_sync, wait_for_leader
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.waiting import eventually

from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition

WAIT_SECONDS_MAX = 60


@quorum_only
@pytest.mark.slow
def test_mechanism_05_brokers_have_ids_of_their_own_and_host_partitions_of_many_topics(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        assert {node.node_id for node in admin.describe_cluster().nodes} == {1, 2, 3}
        names = ["orders", "payments", "clicks"]
        assert set(admin.create_topics([NewTopic(name, 3, 2) for name in names]).values()) == {None}
        hosted = {
            node: [name for name in names for p in admin.describe_topic(name).partitions.values() if node in p.replicas]
            for node in (1, 2, 3)
        }
        assert all(set(found) == set(names) for found in hosted.values())
        (tmp_path / "second").mkdir()
        second = BrokerProcess(tmp_path / "second", port=0, initial_broker_registration_timeout_ms="500")
        second.properties = cluster.add(4).properties | second.properties
        format_(second, CLUSTER_ID)
        try:
            with pytest.raises(RuntimeError, match="DUPLICATE_BROKER_REGISTRATION"):
                second.start()
        finally:
            if second.is_running:
                second.kill()


@pytest.mark.slow
def test_mechanism_15_any_broker_tells_the_metadata_and_a_new_leader_is_seen_after_a_refresh(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
        seen = []
        for node in cluster.nodes.values():
            with Admin(node.bootstrap) as admin, Producer(node.bootstrap) as producer:
                found = eventually(lambda admin=admin: admin.describe_topic("t").partitions, lambda found: len(found) == 3)  # type: ignore[misc]
                seen.append({index: partition.leader for index, partition in found.items()})
                for index in range(3):
                    assert producer.send("t", b"x", partition=index).result(20).partition == index
        assert seen[0] == seen[1] == seen[2]
        with Producer(cluster.bootstrap) as producer:
            producer.send("t", b"before", partition=0).result(20)
            cluster.nodes[seen[0][0]].kill()
            producer.send("t", b"after", partition=0).result(30)
            other = next(node for node in cluster.nodes if node != seen[0][0])
            with Admin(cluster.nodes[other].bootstrap) as admin:
                eventually(lambda: admin.describe_topic("t").partitions[0].leader, lambda leader: leader not in (-1, seen[0][0]))


@pytest.mark.slow
def test_mechanism_33_one_controller_is_active_and_one_that_was_deposed_decides_nothing(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        old = cluster.quorum(1)
        assert [cluster.quorum(node).leader_id for node in cluster.nodes] == [old.leader_id] * 3
        others = [node for node in cluster.nodes if node != old.leader_id]
        cluster.nodes[old.leader_id].send_signal(signal.SIGSTOP)
        try:
            new = eventually(lambda: cluster.quorum(others[0]), lambda found: found.leader_id in others)
            assert new.leader_epoch > old.leader_epoch
            with Admin(cluster.nodes[others[0]].bootstrap) as admin:
                assert admin.create_topics([NewTopic("while-it-slept", 1, 1)]) == {"while-it-slept": None}
        finally:
            cluster.nodes[old.leader_id].send_signal(signal.SIGCONT)
        with Admin(cluster.nodes[old.leader_id].bootstrap) as admin:
            assert admin.create_topics([NewTopic("when-it-woke", 1, 1)]) == {"when-it-woke": None}, "asked of it, decided elsewhere"
            eventually(admin.list_topics, lambda found: {"while-it-slept", "when-it-woke"} <= set(found))
        assert {cluster.quorum(node).leader_epoch for node in cluster.nodes} == {new.leader_epoch}
        assert '"controller_inactive"' in cluster.nodes[old.leader_id].log()


@pytest.mark.slow
def test_mechanism_70_all_brokers_behind_one_address_serve_for_the_bootstrap(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        [port] = lasting_ports(1)
        with Proxy(port, *(node.port for node in cluster.nodes.values())):
            address = f"127.0.0.1:{port}"
            with Admin(address) as admin:
                assert admin.create_topics([NewTopic("t", 6, 2)]) == {"t": None}
            for number in range(3):  # each time another broker is behind it
                with Producer(address) as producer:
                    assert [producer.send("t", b"%d" % number, partition=index).result(20).offset for index in range(6)] == [number] * 6
            with Consumer(address, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["t"])
                read = 0
                while read < 18:
                    read += len(consumer.poll(10_000))


@pytest.mark.slow
def test_mechanism_71_producers_notice_brokers_that_come_and_go(tmp_path: Path) -> None:
    """The partition moves to a broker that was added, which then dies: producers that were there before go on."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, "t", [[1, 2]], min_insync_replicas="1")
        librdkafka = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        sent: list[bytes] = []
        with Producer(cluster.bootstrap) as own:

            def send_one_each() -> None:
                values = [b"%s-%d" % (name, len(sent)) for name in (b"own", b"librdkafka")]
                own.send("t", values[0], partition=0).result(WAIT_SECONDS_MAX)
                librdkafka.produce("t", values[1], partition=0)
                assert librdkafka.flush(WAIT_SECONDS_MAX) == 0
                sent.extend(values)

            send_one_each()
            cluster.add(4)
            for replicas in ([4], [4, 2]):
                assert admin.alter_partition_reassignments({TopicPartition("t", 0): replicas}) == {TopicPartition("t", 0): None}
                wait_for_in_sync(admin, "t", set(replicas))
                wait_for_leader(admin, "t", 4, of=cluster)
                send_one_each()
            cluster.nodes[4].kill()
            wait_for_leader(admin, "t", 2, of=cluster)
            send_one_each()
        found: list[bytes] = []
        with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            while len(found) < len(sent):
                found += [bytes(record.value or b"") for record in consumer.poll(WAIT_SECONDS_MAX * 1000)]
        assert found == sent
