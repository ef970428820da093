"""What each node of ``ottla cluster start`` is configured to be.

The first three nodes, or all of fewer, are brokers and controllers; the others are brokers. Three, because the death of one then leaves a
majority; more voters would make each change of the metadata wait for more disks.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import click

from ottla.cli.nodes.place import ClusterFile, Place
from ottla.config.properties import read_properties
from ottla.errors import ErrorCode, KafkaError

VOTERS_MAX: Final = 3
REPLICAS: Final = 3
MIN_ISR: Final = 2
HOST: Final = "127.0.0.1"
CONTROLLER: Final = "CONTROLLER"
SECURED: Final = "SASL_SSL"
FIRST_PORT: Final = 9092
LAST_PORT: Final = 32_000
"""Above it are the ports that the kernel hands out to outgoing connections: one of them could be taken while a node restarts."""
PORT_MAX: Final = 65_535
"""The end of the search where a cluster was given ports above ``LAST_PORT``."""

OWN_KEYS: Final = frozenset(
    {
        *("node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "process.roles", "cluster.id"),
        *("controller.quorum.voters", "controller.quorum.bootstrap.servers", "controller.listener.names"),
        *("zookeeper.connect", "ottla.admin.listener"),
    }
)
"""Keys that each node has a value of its own for."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node. ``addresses`` are where it binds; ``controller`` is that for controllers, of one that is a voter."""

    node_id: int
    roles: list[str]
    properties: dict[str, str]
    log_dirs: list[str]
    addresses: list[tuple[str, int]]
    controller: str | None


def voters_among(node_ids: list[int]) -> list[int]:
    """Returns the voters. Two nodes are two voters: a change of the metadata needs both, and so it would with a voter alone."""
    return node_ids[:VOTERS_MAX]


def replicating(count: int) -> dict[str, str]:
    """Returns a new cluster's first settings: as many replicas as survive the loss of any one node without an outage."""
    factor, min_isr = str(min(REPLICAS, count)), str(MIN_ISR if count >= REPLICAS else 1)
    return {"default.replication.factor": factor, "min.insync.replicas": min_isr, "offsets.topic.replication.factor": factor}


def replication_of(cluster: ClusterFile) -> str:
    """Returns what topics get that say nothing else, and what that means."""
    from ottla.config import BrokerConfig

    config = BrokerConfig(cluster.properties)
    factor, min_isr = config["default.replication.factor"], config["min.insync.replicas"]
    spare, why = min(factor, len(cluster.nodes)) - min_isr, ""
    spare_voters = (len(cluster.voters) - 1) // 2  # a majority must run
    if cluster.voters and spare_voters < spare:
        spare, why = spare_voters, f" ({len(cluster.voters) - spare_voters} controllers must run)"
    meaning = f"{spare} of {len(cluster.nodes)} nodes may be down" if spare > 0 else "no node may be down"
    return f"replication factor {factor}, min.insync.replicas {min_isr}: {meaning} without an outage{why}"


def check_shared(properties: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG for a key that nodes cannot share."""
    for key in sorted(OWN_KEYS & properties.keys()):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} differs from node to node: `ottla cluster start` sets it; leave it out")


def cluster_plans(place: Place, cluster: ClusterFile) -> list[NodePlan]:
    """Returns all nodes' plans, by their ids."""
    return [cluster_plan(place, cluster, node_id) for node_id in cluster.nodes]


def cluster_plan(place: Place, cluster: ClusterFile, node_id: int) -> NodePlan:
    if cluster.zookeeper is not None:
        return _plan_in_zookeeper(place, cluster, node_id, cluster.zookeeper)
    is_alone = cluster.nodes == [node_id]
    is_voter = node_id in cluster.voters and not is_alone
    roles = ["broker", "controller"] if is_voter or is_alone else ["broker"]
    port, data = cluster.ports[node_id], place.node_file(node_id, "data")
    secured = read_properties(place.shared_file) if cluster.is_secured else {}
    listeners, addresses = [f"{SECURED if secured else 'PLAINTEXT'}://{HOST}:{port}"], [(HOST, port)]
    if is_voter:
        listeners.append(f"{CONTROLLER}://{HOST}:{cluster.controller_ports[node_id]}")
        addresses.append((HOST, cluster.controller_ports[node_id]))
    own = {"node.id": str(node_id), "process.roles": ",".join(roles), "listeners": ",".join(listeners), "log.dirs": data}
    if not is_alone:
        voters = ",".join(f"{voter}@{HOST}:{cluster.controller_ports[voter]}" for voter in cluster.voters)
        own |= {"controller.quorum.voters": voters, "controller.listener.names": CONTROLLER}
    controller = f"{HOST}:{cluster.controller_ports[node_id]}" if is_voter else None
    return NodePlan(node_id, roles, own | secured | cluster.properties, [data], addresses, controller)


def _plan_in_zookeeper(place: Place, cluster: ClusterFile, node_id: int, zookeeper: str) -> NodePlan:
    """Plans a node in ZooKeeper mode, where any node may be the controller."""
    port, data = cluster.ports[node_id], place.node_file(node_id, "data")
    own = {"broker.id": str(node_id), "zookeeper.connect": zookeeper, "listeners": f"PLAINTEXT://{HOST}:{port}", "log.dirs": data}
    return NodePlan(node_id, ["broker"], own | cluster.properties, [data], [(HOST, port)], None)


def check(plans: Iterable[NodePlan]) -> None:
    """Raises INVALID_CONFIG for what no node could start with, before any of them tries."""
    from ottla.broker.requests.listeners import controller_listeners, listeners
    from ottla.broker.roles import read_roles
    from ottla.config import BrokerConfig

    unknown: dict[str, str | None] = {}
    for plan in plans:
        config = BrokerConfig(plan.properties)
        read_roles(config)
        listeners(config)
        controller_listeners(config)
        unknown |= config.unknown
    for name, hint in unknown.items():
        click.echo(f"ottla: warning: {name} is not a broker key" + (f"; did you mean {hint}?" if hint else ""), err=True)


def choose_ports(count: int, first: int) -> int:
    """Returns the first of so many free ports on end, at or above that one. KafkaError when there are none."""
    port, last = first, LAST_PORT if first <= LAST_PORT else PORT_MAX
    while port + count - 1 <= last:
        taken = [number for number in range(port, port + count) if not is_free(HOST, number)]
        if not taken:
            return port
        port = taken[-1] + 1
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"of the ports from {first} to {last} no {count} are free one after the other")


def check_free(addresses: Iterable[tuple[str, int]], way_out: str) -> None:
    """Raises KafkaError with the first port that is in use."""
    for host, port in addresses:
        if port and not is_free(host, port):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"port {port} is in use by another program; {way_out}")


def is_free(host: str, port: int) -> bool:
    """True when a node could bind it now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
