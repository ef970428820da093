"""A cluster of nodes, each in a process of its own, which a test can stop, kill and start again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient

from ottla.broker.formatting import format_log_dirs
from ottla.config import BrokerConfig
from ottla.messages.describe_quorum import DescribeQuorumRequest, PartitionData, PartitionQuorum, TopicData
from ottla.runtime.world import real_world

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class ClusterProcesses:
    """``with ClusterProcesses(folder) as cluster:``: three combined nodes, 1 to 3, and whatever ``add`` adds."""

    node_type: type[BrokerProcess] = BrokerProcess

    def __init__(self, folder: Path, count: int = 3, **properties: str) -> None:
        self._folder = folder
        ports = lasting_ports(2 * count)
        self._voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(ports[count:], 1))
        self._properties = {"controller_quorum_voters": self._voters, "controller_listener_names": "CONTROLLER"} | properties
        self.nodes: dict[int, BrokerProcess] = {}
        for node in range(1, count + 1):
            listeners = f"PLAINTEXT://127.0.0.1:{ports[node - 1]},CONTROLLER://127.0.0.1:{ports[count + node - 1]}"
            self.nodes[node] = self._node(node, ports[node - 1], listeners=listeners, process_roles="broker,controller")

    def _node(self, node: int, port: int, **properties: str) -> BrokerProcess:
        folder = self._folder / f"node-{node}"
        folder.mkdir()
        made = self.node_type(folder, port=port, node_id=str(node), **self._properties | properties)
        format_(made, CLUSTER_ID)
        return made

    def add(self, node: int, port: int = 0, **properties: str) -> BrokerProcess:
        """Another broker, which is no controller; it has started."""
        made = self._node(node, port or lasting_ports(1)[0], process_roles="broker", **properties)
        self.nodes[node] = made
        return made.start()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def controller(self) -> int:
        """The active controller; -1 while there is none."""
        return self.quorum(1).leader_id

    def quorum(self, asked: int) -> PartitionQuorum:
        """What the node says of the quorum: it asks the active controller, if it is not that itself."""
        with RawClient(self.nodes[asked].port) as client:
            answer = client.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2)
        found = answer.topics[0].partitions[0]
        assert isinstance(found, PartitionQuorum)
        return found

    def __enter__(self) -> Self:
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        for node in self.nodes.values():
            node.__exit__(kind, error, trace)


def format_(node: BrokerProcess, cluster_id: str) -> None:
    """The node's log directories are those of the cluster, as by ``ottla storage format``."""
    config = BrokerConfig({"log.dirs": str(node.data), "node.id": node.properties["node.id"]})

    async def run() -> None:
        await format_log_dirs(real_world(io_threads=1), config, cluster_id=cluster_id, features={})

    asyncio.run(run())
