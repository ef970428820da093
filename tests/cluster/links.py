"""Nodes on hosts of their own: each in a network namespace, on a bridge that clients are on, too; links can be cut in one direction.

A cut is silent, as a cable's: the sender is given a permanent neighbour entry with an address that no host has, so that what it
sends to the other one arrives nowhere. A slow host sends no faster than ``SLOW_RATE``, and drops what does not fit into its queue. It takes
root, ``ip``, ``tc`` and ``ss``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.cluster.power import call
from tests.cluster.processes import ClusterProcesses
from tests.cluster.proxy import Proxy
from tests.foreign_clients.broker_process import BrokerProcess

from ottla.runtime.zookeeper_server import ZooKeeperServer

NO_HOST: Final = "02:00:00:00:00:fe"
SLOW_RATE: Final = "2mbit"
CLIENTS: Final = 0
"""Stands for the clients' host among the nodes' ids."""


class Hosts:
    """A bridge with the clients' address, and a namespace with an address for each node. Names and addresses have this process's id."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        pid = os.getpid()
        self._name, self._net = f"o{pid}", f"10.{200 + pid % 50}.{pid % 250}"
        self._node_ids = list(node_ids)
        self._cuts: set[tuple[int, int]] = set()
        self._slow: set[int] = set()
        call("ip", "link", "add", self._name, "type", "bridge")
        call("ip", "addr", "add", f"{self.address(CLIENTS)}/24", "dev", self._name)
        call("ip", "link", "set", self._name, "up")
        for node in self._node_ids:
            inner, outer, space = f"{self._name}i{node}", f"{self._name}o{node}", self.namespace(node)
            call("ip", "netns", "add", space)
            call("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            call("ip", "link", "set", outer, "master", self._name, "up")
            call("ip", "link", "set", inner, "netns", space)
            call("ip", "-n", space, "addr", "add", f"{self.address(node)}/24", "dev", inner)
            call("ip", "-n", space, "link", "set", inner, "up")
            call("ip", "-n", space, "link", "set", "lo", "up")

    def namespace(self, node: int) -> str:
        return f"{self._name}n{node}"

    def address(self, node: int) -> str:
        return f"{self._net}.{254 if node == CLIENTS else node}"

    def cut(self, sender: int, receiver: int) -> None:
        """What the one sends to the other arrives nowhere."""
        self._cuts.add((sender, receiver))
        call(
            *self._ip(sender),
            "neigh",
            "replace",
            self.address(receiver),
            "lladdr",
            NO_HOST,
            "nud",
            "permanent",
            "dev",
            self._device(sender),
        )

    def slow(self, node: int) -> None:
        """What the node sends takes its time."""
        self._slow.add(node)
        shape = ("tbf", "rate", SLOW_RATE, "burst", "32kbit", "latency", "400ms")
        call("tc", "-n", self.namespace(node), "qdisc", "replace", "dev", self._device(node), "root", *shape)

    def reset(self, node: int) -> None:
        """Every connection of the node's ends, at both ends; it may make others at once."""
        call("ip", "netns", "exec", self.namespace(node), "ss", "-K", "-t", "state", "established")

    def heal(self) -> None:
        """Every link works."""
        for node in self._slow:
            call("tc", "-n", self.namespace(node), "qdisc", "del", "dev", self._device(node), "root")
        self._slow.clear()
        for sender, receiver in self._cuts:
            call(*self._ip(sender), "neigh", "del", self.address(receiver), "dev", self._device(sender))
        self._cuts.clear()

    def _ip(self, node: int) -> list[str]:
        return ["ip"] if node == CLIENTS else ["ip", "-n", self.namespace(node)]

    def _device(self, node: int) -> str:
        return self._name if node == CLIENTS else f"{self._name}i{node}"

    def remove(self) -> None:
        for node in self._node_ids:
            call("ip", "netns", "del", self.namespace(node))
        call("ip", "link", "del", self._name)


class LinkedCluster(ClusterProcesses):
    """As ``ClusterProcesses``, on hosts of their own."""

    def __init__(self, directory: Path, count: int = 3, **properties: str) -> None:
        self.hosts = Hosts(range(1, count + 1))
        self._proxy: Proxy | None = None
        try:
            super().__init__(directory, count, **properties)
        except BaseException:
            self.hosts.remove()
            raise

    def host_of(self, node: int) -> str:
        return self.hosts.address(node)

    def zookeeper_address(self, zookeeper: ZooKeeperServer) -> str:
        """On the clients' host, and cut off with it."""
        self._proxy = Proxy(zookeeper.port, zookeeper.port, host=self.hosts.address(CLIENTS))
        self._proxy.accept()
        return f"{self._proxy.host}:{zookeeper.port}"

    def _node(self, node: int, port: int, **properties: Any) -> BrokerProcess:
        made = super()._node(node, port, **properties)
        made.host = self.host_of(node)
        # "ip netns exec" would also give it a view of its own of what is mounted, which keeps other nodes' disks in use.
        made.command = ["nsenter", f"--net=/run/netns/{self.hosts.namespace(node)}"]
        return made

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.hosts.heal()
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self._proxy is not None:
                self._proxy.refuse()
                self._proxy.reset()
            self.hosts.remove()
