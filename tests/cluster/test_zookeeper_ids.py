"""Brokers that are given no ids, on an Apache ZooKeeper: they start at the same time, and each gets one of its own and keeps it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.foreign_clients.broker_process import BrokerProcess

from ottla.coordination import Session
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.sync import Admin, NewTopic


class Nameless(ZookeeperCluster):
    """``nodes`` are numbered as they are made; ids they get themselves."""

    def _node(self, node: int, port: int, **properties: str) -> BrokerProcess:
        directory = self._directory / f"node-{node}"
        directory.mkdir()
        return BrokerProcess(directory, port=port, **self._properties | properties)


@pytest.mark.slow
def test_ids_are_generated_once_and_kept(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with Nameless(tmp_path, zookeeper) as cluster:
        assert cluster.children("/brokers/ids") == ["1001", "1002", "1003"]
        by_port = ids_by_port(cluster)
        assert sorted(by_port) == sorted(node.port for node in cluster.nodes.values())
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        node = cluster.nodes[2]
        node.stop()
        ended = start_as(5, node, cluster.servers)
        assert ended.returncode != 0
        assert f"the configuration has broker.id=5, and log.dirs has {node.data} of broker.id={by_port[node.port]}" in ended.stderr
        assert "Traceback" not in ended.stderr
        node.start()
        assert ids_by_port(cluster) == by_port

        async def version(session: Session) -> int:
            return (await session.get("/brokers/seqid"))[1].version

        assert cluster.ask(version) == 3, "one write for each broker"


def start_as(broker_id: int, node: BrokerProcess, zookeeper: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a process with this id on the node's directory."""
    given = {
        "broker.id": broker_id,
        "zookeeper.connect": zookeeper,
        "log.dirs": node.data,
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port}",
    }
    options = [argument for key, value in given.items() for argument in ("-X", f"{key}={value}")]
    return subprocess.run([sys.executable, "-m", "ottla", "broker", "start", *options], capture_output=True, text=True, check=False)


def ids_by_port(cluster: ZookeeperCluster) -> dict[int, int]:
    return {int(cluster.get(f"/brokers/ids/{name}")["port"]): int(name) for name in cluster.children("/brokers/ids")}
