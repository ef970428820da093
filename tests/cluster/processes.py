"""A cluster of nodes, each in a process of its own, which a test can stop, kill and start again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import pytest
from tests.cluster.access import Access
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.foreign_clients.wire import RawClient

from ottla.broker.formatting import format_log_dirs
from ottla.config import BrokerConfig
from ottla.coordination import NoNodeError
from ottla.messages.describe_quorum import DescribeQuorumRequest, PartitionData, PartitionQuorum, TopicData
from ottla.metadata import znodes
from ottla.runtime.world import real_world
from ottla.runtime.zookeeper import ZooKeeper
from ottla.runtime.zookeeper_server import ZooKeeperServer

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
HOME = "OTTLA_HOME"
"""``OTTLA_HOME=zookeeper pytest tests/cluster``: the same clusters, in ZooKeeper mode."""
ZOOKEEPER_SESSION_MS = "9000"
IS_IN_ZOOKEEPER = os.environ.get(HOME) == "zookeeper"
quorum_only = pytest.mark.skipif(IS_IN_ZOOKEEPER, reason="says something of quorums")


class NodeProcesses:
    """``nodes`` are those of one cluster: started together, and killed at the end."""

    nodes: dict[int, BrokerProcess]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def access(self) -> Access:
        """How its clients get in."""
        return Access(self.bootstrap)

    def __enter__(self) -> Self:
        try:
            self._start_together()
        except BaseException as error:  # nobody calls __exit__ after it
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def kill_and_start_all(self) -> None:
        """SIGKILL of every node, one right after the other; they are started together, and serve."""
        for node in self.nodes.values():
            node.kill()
        self._start_together()

    def _start_together(self) -> None:
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait_until_ready()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        for node in self.nodes.values():
            node.__exit__(kind, error, trace)


class ClusterProcesses(NodeProcesses):
    """``with ClusterProcesses(directory) as cluster:``: three combined nodes, 1 to 3, and whatever ``add`` adds."""

    node_type: type[BrokerProcess] = BrokerProcess
    is_in_zookeeper = IS_IN_ZOOKEEPER

    features: Mapping[str, int] = MappingProxyType({})
    """The levels that it is formatted for, the highest without any."""

    def __init__(self, directory: Path, count: int = 3, **properties: str) -> None:
        self._directory = directory
        ports = lasting_ports(2 * count + 1)
        self._zookeeper: ZooKeeperServer | None = None
        if self.is_in_zookeeper:
            self._begin_in_zookeeper(ports, count, properties)
            return
        self.voters = ",".join(f"{node}@{self.host_of(node)}:{port}" for node, port in enumerate(ports[count : 2 * count], 1))
        self._properties = {"controller_quorum_voters": self.voters, "controller_listener_names": "CONTROLLER"} | properties
        self.nodes = {}
        for node in range(1, count + 1):
            host = self.host_of(node)
            listeners = f"PLAINTEXT://{host}:{ports[node - 1]},CONTROLLER://{host}:{ports[count + node - 1]}"
            self.nodes[node] = self._node(node, ports[node - 1], listeners=listeners, process_roles="broker,controller")

    def _begin_in_zookeeper(self, ports: list[int], count: int, properties: dict[str, str]) -> None:
        """All brokers are the same, and any of them may be the controller."""
        self._zookeeper = ZooKeeperServer(self._directory / "zookeeper", ports[-1])
        self._zookeeper.start()
        address = self.zookeeper_address(self._zookeeper)
        own = {"zookeeper_connect": f"{address}/cluster", "zookeeper_session_timeout_ms": ZOOKEEPER_SESSION_MS}
        self._properties = {"cluster_id": CLUSTER_ID} | own | properties
        self.nodes = {}
        for node, port in enumerate(ports[:count], 1):
            self.nodes[node] = self._node(node, port, listeners=f"PLAINTEXT://{self.host_of(node)}:{port}")

    def _node(self, node: int, port: int, **properties: str) -> BrokerProcess:
        directory = self._directory / f"node-{node}"
        directory.mkdir()
        if self._zookeeper is not None:
            properties.pop("process_roles", None)
        made = self.node_type(directory, port=port, node_id=str(node), **self._properties | properties)
        if self._zookeeper is None:
            format_(made, CLUSTER_ID, self.features)
        return made

    def add(self, node: int, port: int = 0, **properties: str) -> BrokerProcess:
        """Another broker, which is no controller; it has started."""
        made = self._node(node, port or lasting_ports(1)[0], process_roles="broker", **properties)
        self.nodes[node] = made
        return made.start()

    def zookeeper_address(self, zookeeper: ZooKeeperServer) -> str:
        """Where the nodes reach it."""
        return zookeeper.address

    def host_of(self, node: int) -> str:
        """Where the node listens."""
        return "127.0.0.1"

    @property
    def controller(self) -> int:
        """The active controller; -1 while there is none."""
        return self.quorum(1).leader_id

    def quorum(self, asked: int) -> PartitionQuorum:
        """What the node says of the quorum: it asks the active controller, if it is not that itself. In ZooKeeper: who is that."""
        if self._zookeeper is not None:
            return asyncio.run(self._controller_in(f"{self._zookeeper.address}/cluster"))
        with RawClient(self.nodes[asked].port, self.nodes[asked].host) as client:
            answer = client.ask(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2)
        found = answer.topics[0].partitions[0]
        assert isinstance(found, PartitionQuorum)
        return found

    @property
    def ends(self) -> dict[int, int]:
        """How much of the metadata log each voter has."""
        return {voter.replica_id: voter.log_end_offset for voter in self.quorum(1).current_voters}

    def replace_voter(self, old: int, new: int) -> None:
        """All nodes are stopped, and started with another list: a new node is in it in place of an old one, which has gone."""
        running = list(self.nodes.values())
        [port] = lasting_ports(1)  # while the others have theirs
        for node in running:
            node.stop()
        address = next(voter for voter in self.voters.split(",") if voter.startswith(f"{old}@")).partition("@")[2]
        self.voters = self.voters.replace(f"{old}@", f"{new}@")
        self._properties["controller_quorum_voters"] = self.voters
        for node in running:
            node.properties["controller.quorum.voters"] = self.voters
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{address}"
        self.nodes[new] = self._node(new, port, listeners=listeners, process_roles="broker,controller")
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait_until_ready()

    async def _controller_in(self, servers: str) -> PartitionQuorum:
        session = await ZooKeeper().connect(servers, session_timeout_ms=int(ZOOKEEPER_SESSION_MS))
        try:
            leader_id = znodes.decode_controller((await session.get(znodes.CONTROLLER))[0])
        except NoNodeError:
            leader_id = -1
        epoch = znodes.decode_controller_epoch((await session.get(znodes.CONTROLLER_EPOCH))[0])
        await session.close()
        return PartitionQuorum(0, leader_id=leader_id, leader_epoch=epoch)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        if self._zookeeper is not None:
            self._zookeeper.kill()


class ZookeeperProcesses(ClusterProcesses):
    """The same in ZooKeeper mode, however the tests are run."""

    is_in_zookeeper = True


def format_(node: BrokerProcess, cluster_id: str, features: Mapping[str, int] = MappingProxyType({})) -> None:
    """The node's log directories are those of the cluster, as by ``ottla storage format``."""
    config = BrokerConfig({"log.dirs": str(node.data), "node.id": node.properties["node.id"]})

    async def run() -> None:
        await format_log_dirs(real_world(io_threads=1), config, cluster_id=cluster_id, features=dict(features))

    asyncio.run(run())
