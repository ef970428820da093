"""A node that cannot go on says in its log what it waits for, and when it waits no longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.cluster.processes import ClusterProcesses, quorum_only
from tests.foreign_clients.broker_process import BrokerProcess
from tests.waiting import eventually

from ottla.runtime.zookeeper_server import ZooKeeperServer

NODE_WAITS, NO_LONGER = '"node_waits"', '"node_waits_no_longer"'


def says(node: BrokerProcess, *words: str) -> None:
    """A line of its log has all of these."""
    eventually(lambda: [line for line in node.log().splitlines() if all(word in line for word in words)], bool)


@quorum_only
@pytest.mark.slow
def test_a_node_that_starts_alone_and_one_that_is_left_alone_wait_for_a_majority(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        for node in (2, 3):
            cluster.nodes[node].kill()
        says(cluster.nodes[1], NODE_WAITS, "a majority of the controllers to elect a leader (1@", "that needs 2 of them")
        cluster.nodes[2].start()
        says(cluster.nodes[1], NO_LONGER)
        for node in (1, 2):
            cluster.nodes[node].kill()
        alone = cluster.nodes[3]
        before = alone.log().count(NODE_WAITS)
        alone.spawn()
        eventually(lambda: alone.log().count(NODE_WAITS), lambda found: found > before)
        cluster.nodes[1].spawn()
        alone.wait_until_ready()


@pytest.mark.slow
def test_a_node_in_zookeeper_mode_waits_for_zookeeper(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    patient = str(60_000)  # the server is a JVM, and the machine may be busy
    with ZookeeperCluster(tmp_path, zookeeper, count=1, zookeeper_connection_timeout_ms=patient) as cluster:
        node = cluster.nodes[1]
        zookeeper.kill()
        says(node, NODE_WAITS, f"ZooKeeper at {cluster.servers} to answer")
        zookeeper.start()
        says(node, NO_LONGER)
        node.kill()
        zookeeper.kill()
        said = node.log().count(NODE_WAITS)
        node.spawn()
        eventually(lambda: node.log().count(NODE_WAITS), lambda found: found > said)
        zookeeper.start()
        node.wait_until_ready()
