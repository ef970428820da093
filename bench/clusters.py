"""Clusters of three nodes, each of them broker and controller, on default timeouts: ottla's, and Apache Kafka's 4.3.

A node is killed by its own process id, and started again on the same directory and ports.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import eventually

from bench.peers import Kafka, children_of, cpu_seconds_of
from ottla.errors import KafkaError
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.sync import Admin

NODES: Final = (1, 2, 3)


class Cluster(Protocol):
    name: str

    @property
    def bootstrap(self) -> str: ...

    def kill(self, node: int) -> None:
        """As by kill -9."""

    def start(self, node: int) -> None:
        """The node is on its way back."""

    def active(self, admin: Admin) -> int:
        """The active controller."""

    def cpu_seconds(self) -> float:
        """User and system time so far, of the nodes that run."""


class OttlaCluster:
    def __init__(self, processes: ClusterProcesses | ZookeeperCluster, name: str = "ottla") -> None:
        self._processes = processes
        self.name = name

    @property
    def bootstrap(self) -> str:
        return self._processes.bootstrap

    def kill(self, node: int) -> None:
        self._processes.nodes[node].kill()

    def start(self, node: int) -> None:
        self._processes.nodes[node].start()

    def active(self, admin: Admin) -> int:
        return self._processes.controller

    def cpu_seconds(self) -> float:
        pids = [node.pid for node in self._processes.nodes.values() if node.is_running]
        return sum(map(cpu_seconds_of, [*pids, *(child for pid in pids for child in children_of(pid))]))


class KafkaNode(Kafka):
    """One of three."""

    def __init__(self, node: int, ports: list[int]) -> None:
        super().__init__()
        self.address = ("127.0.0.1", ports[node - 1])
        voters = ",".join(f"{voter}@127.0.0.1:{ports[len(NODES) + voter - 1]}" for voter in NODES)
        controller = ports[len(NODES) + node - 1]
        lines = {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.address[1]},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": voters,
        }
        with self._config.open("a") as config:  # the last of two lines counts
            config.write("".join(f"{key}={value}\n" for key, value in lines.items()))

    def wait_until_ready(self) -> None:
        """Not here: nodes wait for each other."""

    def kill(self) -> None:
        assert self._process is not None, "the process was started"
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __exit__(self, *_: object) -> None:
        if self.is_running():
            self.kill()
        self._directory.cleanup()


class KafkaCluster:
    name = "kafka"

    def __init__(self, nodes: dict[int, KafkaNode]) -> None:
        self._nodes = nodes

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self._nodes.values())

    def kill(self, node: int) -> None:
        self._nodes[node].kill()

    def start(self, node: int) -> None:
        self._nodes[node].start()

    def active(self, admin: Admin) -> int:
        return admin.describe_quorum().leader_id

    def cpu_seconds(self) -> float:
        return sum(node.cpu_seconds() for node in self._nodes.values() if node.is_running())


@contextmanager
def zookeeper_cluster() -> Iterator[Cluster]:
    """Sessions last 18 s, as by default: no death is noticed by their end."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for part in ("zookeeper", "cluster"):
            (directory / part).mkdir()
        server = ZooKeeperServer(directory / "zookeeper", lasting_ports(20)[-1])
        server.start()
        try:
            with ZookeeperCluster(directory / "cluster", server, zookeeper_session_timeout_ms="18000") as processes:
                yield OttlaCluster(processes, "ottla in ZooKeeper mode")
        finally:
            server.kill()


@contextmanager
def ottla_cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as directory, ClusterProcesses(Path(directory)) as processes:
        yield OttlaCluster(processes)


@contextmanager
def kafka_cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        ports = lasting_ports(2 * len(NODES))
        cluster = KafkaCluster({node: stack.enter_context(KafkaNode(node, ports)) for node in NODES})
        eventually(lambda: broker_count(cluster.bootstrap), lambda found: found == len(NODES))
        yield cluster


def broker_count(bootstrap: str) -> int:
    """How many brokers serve; none while no broker answers."""
    try:
        with Admin(bootstrap) as admin:
            return len(admin.describe_cluster().nodes)
    except KafkaError:
        return 0
