"""Three processes, one truth: a quorum decides, brokers follow, topics spread, clients ask any broker."""

from __future__ import annotations

import shutil
import socket
import threading
from pathlib import Path

import pytest
from tests.cluster.processes import CLUSTER_ID, ClusterProcesses, format_, quorum_only
from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import eventually

from ottla.errors import ErrorCode, KafkaError
from ottla.sync import Admin, Consumer, NewTopic, Producer


@pytest.mark.slow
def test_topics_spread_over_all_brokers_and_every_broker_serves_all_of_them(tmp_path: Path) -> None:
    """Mechanism 9: each broker leads its share; clients may ask any broker for any change."""
    with ClusterProcesses(tmp_path) as cluster:
        for node in cluster.nodes.values():
            with Admin(node.bootstrap) as admin:
                assert admin.create_topics([NewTopic(f"by-{node.port}", 3, 1)]) == {f"by-{node.port}": None}
        names = [f"by-{node.port}" for node in cluster.nodes.values()]
        for node in cluster.nodes.values():
            with Admin(node.bootstrap) as admin:
                eventually(admin.list_topics, lambda found: set(names) <= set(found))
                for name in names:
                    partitions = admin.describe_topic(name).partitions
                    assert sorted(partition.leader for partition in partitions.values()) == [1, 2, 3]
        with Producer(cluster.nodes[1].bootstrap) as producer:
            sent = [producer.send(name, f"{number}".encode(), partition=number % 3) for name in names for number in range(30)]
            assert [future.result(10).partition for future in sent] == [number % 3 for _ in names for number in range(30)]
        with Consumer(cluster.nodes[2].bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(names)
            read = 0
            while read < 90:
                read += len(consumer.poll(10_000))
            consumer.commit()
        with Admin(cluster.nodes[3].bootstrap) as admin:
            committed = admin.committed_offsets("readers")
            assert sum(offset.offset for offset in committed.values()) == 90


@pytest.mark.slow
def test_a_replication_factor_above_the_brokers_is_refused_in_words(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        refused = admin.create_topics([NewTopic("t", 1, 4)])["t"]
        assert isinstance(refused, KafkaError)
        assert refused.code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "larger than the 3 brokers" in refused.message


@pytest.mark.slow
def test_the_active_controller_dies_and_nothing_that_it_acknowledged_is_lost(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        leader = cluster.quorum(1).leader_id
        others = [node for node in cluster.nodes if node != leader]
        acknowledged: list[str] = []
        failed: list[object] = []
        stopping = threading.Event()

        def create() -> None:
            with Admin(cluster.nodes[others[0]].bootstrap) as admin:
                number = 0
                while not stopping.is_set():
                    number += 1
                    result = admin.create_topics([NewTopic(f"topic-{number}", 1, 1)])[f"topic-{number}"]
                    if result is None or result.code == ErrorCode.TOPIC_ALREADY_EXISTS:  # of a request that was repeated
                        acknowledged.append(f"topic-{number}")
                    else:
                        failed.append(result)

        creating = threading.Thread(target=create)
        creating.start()
        try:
            eventually(lambda: len(acknowledged), lambda count: count >= 20)
            cluster.nodes[leader].kill()
            before = len(acknowledged)
            eventually(lambda: len(acknowledged), lambda count: count >= before + 20)
        finally:
            stopping.set()
            creating.join()
        assert not failed
        after = cluster.quorum(others[1])
        assert after.leader_id in others
        with Admin(cluster.nodes[others[1]].bootstrap) as admin:
            eventually(admin.list_topics, lambda found: set(acknowledged) <= set(found))
        cluster.nodes[leader].start()
        returned = cluster.quorum(leader)
        assert returned.leader_epoch >= after.leader_epoch
        with Admin(cluster.nodes[leader].bootstrap) as admin:
            eventually(admin.list_topics, lambda found: set(acknowledged) <= set(found))
            nodes = eventually(lambda: admin.describe_cluster().nodes, lambda found: len(found) == 3)
            assert {node.node_id for node in nodes} == {1, 2, 3}


@pytest.mark.slow
def test_a_broker_that_is_gone_is_fenced_and_leads_again_when_it_is_back(tmp_path: Path) -> None:
    """On default timeouts: nine seconds of silence."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 3, 1)]) == {"t": None}
        [index] = [index for index, found in admin.describe_topic("t").partitions.items() if found.leader == 3]
        with Producer(cluster.bootstrap) as producer:
            producer.send("t", b"before", partition=index).result(10)
            cluster.nodes[3].kill()
            eventually(lambda: admin.describe_topic("t").partitions[index].leader, lambda leader: leader == -1)
            assert {node.node_id for node in admin.describe_cluster().nodes} == {1, 2}
            cluster.nodes[3].start()
            eventually(lambda: admin.describe_topic("t").partitions[index].leader, lambda leader: leader == 3)
            assert producer.send("t", b"after", partition=index).result(30).offset == 1


@pytest.mark.slow
def test_all_nodes_restart_and_go_on_where_they_were(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 6, 1)]) == {"t": None}
        epoch = cluster.quorum(1).leader_epoch
        cluster.kill_and_start_all()
        assert cluster.quorum(2).leader_epoch > epoch
        with Admin(cluster.bootstrap) as admin:
            eventually(
                lambda: sorted(p.leader for p in admin.describe_topic("t").partitions.values()), lambda found: found == [1, 1, 2, 2, 3, 3]
            )


@quorum_only
@pytest.mark.slow
def test_a_fourth_broker_gets_partitions_of_new_topics(tmp_path: Path) -> None:
    """Mechanism 8. It is told two servers that may know the voters: nobody is at the first one, and the second one is no controller."""
    with ClusterProcesses(tmp_path) as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("old", 4, 1)]) == {"old": None}
        [nobody] = lasting_ports(1)
        servers = f"127.0.0.1:{nobody},{cluster.nodes[2].bootstrap}"
        cluster.add(4, controller_quorum_voters="", controller_quorum_bootstrap_servers=servers)
        with Admin(cluster.nodes[4].bootstrap) as admin:
            assert admin.create_topics([NewTopic("new", 4, 1)]) == {"new": None}
            assert sorted(found.leader for found in admin.describe_topic("new").partitions.values()) == [1, 2, 3, 4]
            assert 4 not in {found.leader for found in admin.describe_topic("old").partitions.values()}
        observers = [observer.replica_id for observer in cluster.quorum(1).observers]
        assert observers == [4]


@quorum_only
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("emptied", "is not formatted"),
        ("foreign", "INCONSISTENT_CLUSTER_ID"),
        (
            "without its metadata log",
            "with its meta.properties and run `ottla storage format FILE --cluster-id ID`",
        ),
    ],
)
@pytest.mark.slow
def test_a_directory_that_is_not_the_nodes_own_is_refused(tmp_path: Path, wrong: str, said: str) -> None:
    """A voter that started there would vote as if it had promised nothing."""
    with ClusterProcesses(tmp_path) as cluster:
        node = cluster.nodes[3]
        node.kill()
        shutil.rmtree(node.data if wrong != "without its metadata log" else node.data / "__cluster_metadata-0")
        if wrong == "foreign":
            format_(node, "AAAAAAAAAAAAAAAAAAAAAA")
        with pytest.raises(RuntimeError, match=said):
            node.start()


@quorum_only
@pytest.mark.slow
def test_a_controller_that_lost_its_disk_is_formatted_again_while_the_others_agree(tmp_path: Path) -> None:
    """As docs/operating.md has it. It gets all that was decided, and its vote counts: one of the others stops afterwards."""
    with ClusterProcesses(tmp_path) as cluster:
        node = cluster.nodes[3]
        node.kill()
        with Admin(cluster.nodes[1].bootstrap) as admin:
            assert admin.create_topics([NewTopic("meanwhile", 1, 2)]) == {"meanwhile": None}
        shutil.rmtree(node.data)
        eventually(lambda: len({cluster.ends[voter] for voter in (1, 2)}), lambda ends: ends == 1)
        format_(node, CLUSTER_ID)
        node.start()
        eventually(lambda: len(set(cluster.ends.values())), lambda ends: ends == 1)
        cluster.nodes[2].kill()
        with Admin(node.bootstrap) as admin:
            eventually(admin.list_topics, lambda topics: "meanwhile" in topics)
            assert admin.create_topics([NewTopic("afterwards", 1, 1)]) == {"afterwards": None}


@quorum_only
@pytest.mark.slow
def test_a_controller_is_replaced_by_another_one_while_all_are_stopped(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        lost = cluster.nodes.pop(3)
        lost.kill()
        with Admin(cluster.nodes[1].bootstrap) as admin:
            assert admin.create_topics([NewTopic("before", 1, 2)]) == {"before": None}
        eventually(lambda: len({cluster.ends[voter] for voter in (1, 2)}), lambda ends: ends == 1)
        cluster.replace_voter(3, 4)
        eventually(lambda: cluster.ends, lambda ends: set(ends) == {1, 2, 4} and len(set(ends.values())) == 1)
        cluster.nodes[2].kill()
        with Admin(cluster.nodes[4].bootstrap) as admin:
            eventually(admin.list_topics, lambda topics: "before" in topics)
            assert admin.create_topics([NewTopic("afterwards", 1, 1)]) == {"afterwards": None}


def test_a_node_that_waits_for_a_majority_is_stopped_by_sigterm(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    node = cluster.nodes[1]
    node.spawn()
    try:
        eventually(lambda: is_listening(node.port), bool)  # it waits for others from then on
        node.stop()
        assert "broker_stopped_while_it_started" in node.log()
    finally:
        if node.is_running:
            node.kill()


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
