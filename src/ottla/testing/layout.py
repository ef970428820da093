"""What the nodes of a test are configured to be: where they listen, and what makes them quick.

A node that is killed and started again has the address that it had. Its ports are below those that the kernel gives to outgoing
connections, of which a client that knocks while the node is down could otherwise take one.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.config import BROKER_KEYS, BrokerConfig, find_broker_key, nearest
from ottla.errors import ErrorCode, KafkaError

HOST: Final = "127.0.0.1"
CLUSTER_ID: Final = "dGVzdC1vZi1vdHRsYS0tMQ"
FIRST_PORT, LAST_PORT = 15_000, 30_000
VOTERS_MAX: Final = 3
OWN_KEYS: Final = frozenset(
    {"node.id", "listeners", "log.dirs", "process.roles", "controller.quorum.voters", "controller.listener.names", "zookeeper.connect"}
)
_COUNTS: Final = frozenset({"count", "nodes", "node.count", "num.nodes", "brokers", "broker.count", "num.brokers", "size", "n"})
"""Names for the number of nodes, as keywords that are taken for broker keys."""
PROFILE: Final = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "controller.quorum.election.timeout.ms": "100",
}
"""How nodes of a test differ from others. Their first election is what the start of several would wait for."""


class BrokerKeyError(KafkaError, ValueError):
    """A key that brokers of a test do not take: unknown, or their own. INVALID_CONFIG, as an illegal value is; a ValueError, too."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


@dataclass(frozen=True, slots=True)
class Layout:
    """So many nodes below one directory. ``ports`` has a node's port for clients and that for controllers."""

    directory: Path
    ports: Mapping[int, tuple[int, int]]
    properties: Mapping[str, str]
    protocol: str = "PLAINTEXT"  # of the listener for clients

    @classmethod
    def of(cls, count: int, directory: Path, properties: Mapping[str, str], protocol: str = "PLAINTEXT") -> Layout:
        """Makes a layout. BrokerKeyError for an unknown key, and for one that each node has a value of its own for."""
        for key in sorted(OWN_KEYS & properties.keys()):
            raise BrokerKeyError(f"{key} differs from node to node and is set by ottla.testing; leave it out")
        for key in properties:
            if find_broker_key(key) is None:
                if key in _COUNTS:
                    text = "the number of nodes is an argument of clusters: thread_cluster(3) or cluster(3); broker() has one"
                    raise BrokerKeyError(f"{key} is not a broker key; {text}")
                near = nearest(key, BROKER_KEYS)
                hint = f"did you mean {near}, as a keyword {near.replace('.', '_')}?" if near else "`ottla config keys` lists the keys"
                raise BrokerKeyError(f"{key} is not a broker key; {hint}")
        found = free_ports(2 * count)
        ports = {node_id: (found[node_id - 1], found[count + node_id - 1]) for node_id in range(1, count + 1)}
        replicated = _replicated(count) if count > 1 else {}
        return cls(directory, ports, PROFILE | replicated | dict(properties), protocol)

    @property
    def is_alone(self) -> bool:
        return len(self.ports) == 1

    def data_of(self, node_id: int) -> Path:
        """Returns the node's log directory."""
        return self.directory / f"node-{node_id}"

    def properties_of(self, node_id: int) -> dict[str, str]:
        """Returns the node's configuration."""
        port, controller_port = self.ports[node_id]
        own = {"node.id": str(node_id), "log.dirs": str(self.data_of(node_id)), "listeners": f"{self.protocol}://{HOST}:{port}"}
        if not self.is_alone:
            voters = {voter: ports[1] for voter, ports in self.ports.items() if voter <= VOTERS_MAX}
            own["controller.quorum.voters"] = ",".join(f"{voter}@{HOST}:{number}" for voter, number in voters.items())
            own["controller.listener.names"] = "CONTROLLER"
            own["process.roles"] = "broker"
            if node_id in voters:
                own["process.roles"] = "broker,controller"
                own["listeners"] += f",CONTROLLER://{HOST}:{controller_port}"
        return own | dict(self.properties)

    def config_of(self, node_id: int) -> BrokerConfig:
        return BrokerConfig(self.properties_of(node_id))


def _replicated(count: int) -> dict[str, str]:
    """Returns settings with as many replicas as survive the death of any one node."""
    factor, in_sync = str(min(3, count)), "2" if count >= 3 else "1"
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
    }


def properties_from(keys: Mapping[str, object]) -> dict[str, str]:
    """Returns broker keys from keyword arguments: ``_`` for ``.``, and true for True."""
    return {key.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value) for key, value in keys.items()}


def checked_count(count: object) -> int:
    """Returns the number of nodes. TypeError for what is no number, ValueError for none."""
    if not isinstance(count, int):
        raise TypeError(f"the number of nodes is {count!r}: a whole number is expected")
    if count < 1:
        raise ValueError(f"the number of nodes is {count}: at least 1 is needed")
    return count


def free_ports(count: int) -> list[int]:
    """Returns so many free ports. Processes that choose at the same time start at random ports, and so find different ones."""
    span = LAST_PORT - FIRST_PORT
    first = random.randrange(span)
    ports: list[int] = []
    for step in range(span):
        port = FIRST_PORT + (first + step) % span
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"fewer than {count} ports are free from {FIRST_PORT} to {LAST_PORT}")


def too_few(started: int, running: int, count: int) -> str:
    """Returns what is to be done where the nodes that were started, with those that run, are no majority; else nothing."""
    if 2 * (started + running) > count:
        return ""
    return f": {started + running} of {count} nodes are no majority, without which none serves; start several together, as in restart(1, 2)"
