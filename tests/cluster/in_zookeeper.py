"""A cluster in ZooKeeper mode: each broker in a process of its own, all of them under a chroot of the tests' ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.processes import NodeProcesses
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports

from ottla.coordination import NoNodeError, Session
from ottla.runtime.zookeeper import ZooKeeper
from ottla.runtime.zookeeper_server import ZooKeeperServer

T = TypeVar("T")
SESSION_MS = 6000


class ZookeeperCluster(NodeProcesses):
    """``with ZookeeperCluster(directory, server) as cluster:``; brokers 1 to ``count``. They reach it by ``servers``, if not directly."""

    def __init__(self, directory: Path, server: ZooKeeperServer, count: int = 3, *, servers: str = "", **properties: str) -> None:
        self._directory = directory
        self.chroot = f"/{directory.name}"
        self.servers = (servers or server.address) + self.chroot
        self._server = server
        self._address = server.address + self.chroot
        self._properties = {"zookeeper_connect": self.servers, "zookeeper_session_timeout_ms": str(SESSION_MS)} | properties
        self.nodes = {}
        for node, port in enumerate(lasting_ports(count), 1):
            self.nodes[node] = self._node(node, port)

    def _node(self, node: int, port: int, **properties: str) -> BrokerProcess:
        directory = self._directory / f"node-{node}"
        directory.mkdir()
        return BrokerProcess(directory, port=port, broker_id=str(node), **self._properties | properties)

    def add(self, node: int, **properties: str) -> BrokerProcess:
        """Another broker; it has started."""
        made = self._node(node, lasting_ports(1)[0], **properties)
        self.nodes[node] = made
        return made.start()

    def zookeeper(self) -> None:
        """Its server is killed, and comes back."""
        self._server.kill()
        self._server.start()

    # -- what is in ZooKeeper

    def ask(self, question: Callable[[Session], Awaitable[T]]) -> T:
        """In a session of its own."""

        async def run() -> T:
            session = await ZooKeeper().connect(self._address, session_timeout_ms=SESSION_MS)
            try:
                return await question(session)
            finally:
                await session.close()

        return asyncio.run(run())

    def get(self, path: str) -> Any:
        """The znode's JSON; None when there is no such znode."""

        async def get(session: Session) -> Any:
            try:
                return json.loads((await session.get(path))[0] or b"null")
            except NoNodeError:
                return None

        return self.ask(get)

    def children(self, path: str) -> list[str]:
        return self.ask(lambda session: session.children(path))

    def names(self, path: str) -> list[str]:
        """As ``children``; none where there is no such znode."""
        try:
            return self.children(path)
        except NoNodeError:
            return []

    @property
    def controller(self) -> int:
        """The broker that is the controller; -1 when there is none."""
        found = self.get("/controller")
        return -1 if found is None else int(found["brokerid"])

    @property
    def epoch(self) -> int:
        return int(self.get("/controller_epoch"))

    def state(self, topic: str, index: int = 0) -> Any:
        return self.get(f"/brokers/topics/{topic}/partitions/{index}/state")
