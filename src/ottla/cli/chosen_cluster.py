"""The cluster that ``ottla cluster start`` starts: the one of the directory, or a new one; and the next node of one that runs."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import complain

if TYPE_CHECKING:
    from ottla.cli.nodes.place import ClusterFile, Place
    from ottla.cli.nodes.plan import NodePlan

OWN: Final = "own"
"""For ``--zookeeper``: one beside the nodes."""


def described(
    place: Place,
    count: int | None,
    port: int | None,
    overrides: tuple[str, ...],
    zookeeper: str | None = None,
    *,
    is_secured: bool = False,
) -> tuple[ClusterFile, bool]:
    """Returns the cluster that is here, or a new one, and whether it is new. PlaceError for a directory of something else."""
    from ottla.broker.formatting import random_uuid
    from ottla.cli.config import key_and_value
    from ottla.cli.nodes.place import ClusterFile, PlaceError
    from ottla.cli.nodes.plan import FIRST_PORT, HOST, check_shared, is_free, replicating, voters_among
    from ottla.runtime.world import real_world

    properties = dict(map(key_and_value, overrides))
    check_shared(properties)
    secured = [key for key in properties if key.startswith("zookeeper.ssl.")]
    if zookeeper == OWN and secured:
        raise click.UsageError(
            f"-X {secured[0]}: the ZooKeeper of --zookeeper own takes no TLS; --zookeeper HOST:PORT names one that does, with the same -X"
        )
    if is_secured and zookeeper:
        raise click.UsageError("--secure is for a quorum of the nodes: users of a cluster in ZooKeeper are kept there")
    found = place.read()
    if found is None:
        if place.foreign_entries:
            raise PlaceError(f"{place.path} has {place.foreign_entries[0]} and is no cluster's directory; choose a new or empty one")
        nodes = list(range(1, (count or 3) + 1))
        voters = [] if zookeeper else voters_among(nodes)
        made = ClusterFile(
            "cluster", random_uuid(real_world(io_threads=1)), nodes, voters, properties=replicating(len(nodes)) | properties
        )  # fmt: skip
        made.is_secured = is_secured
        made.zookeeper, made.zookeeper_port = (None, 0) if zookeeper == OWN else (zookeeper, None)
        needed = number_ports(made, port)
        first = min(made.ports.values())
        if port is None and first != FIRST_PORT:
            complain(f"port {FIRST_PORT} or one of the {needed - 1} that follow is in use; the nodes use {first} to {first + needed - 1}")
        return made, True
    if found.kind != "cluster":
        raise PlaceError(f"{place.path} has the brokers of `ottla broker start --cores`; start them by that, or choose another directory")
    if count is not None and count != len(found.nodes):
        text = f"{place.path} has a cluster of {len(found.nodes)} nodes, not {count}"
        raise PlaceError(f"{text}: start it without -n, and use `ottla cluster add` for more")
    if port and port != min(found.ports.values()):
        raise PlaceError(f"the cluster in {place.path} has the ports from {min(found.ports.values())} on; start it without --port")
    if is_secured and not found.is_secured:
        text = f"the cluster in {place.path} was made without --secure, and that stays so"
        raise PlaceError(f"{text}: start it without, or choose another directory")
    if zookeeper and zookeeper != (found.zookeeper if found.zookeeper_port is None else OWN):
        home = "in a quorum of its nodes" if found.zookeeper is None else f"in the ZooKeeper at {found.zookeeper}"
        raise PlaceError(f"the cluster in {place.path} keeps its metadata {home}, and that stays so: start it without --zookeeper")
    own = [] if found.zookeeper_port is None else [found.zookeeper_port]
    if port == 0 and not all(is_free(HOST, number) for number in (*found.ports.values(), *found.controller_ports.values(), *own)):
        number_ports(found, 0)
    found.properties |= properties
    return found, False


def number_ports(cluster: ClusterFile, port: int | None) -> int:
    """Numbers the nodes' ports on end, from that one or the first free ones on. Returns how many they are."""
    from ottla.cli.nodes.plan import FIRST_PORT, choose_ports

    voters = cluster.voters if len(cluster.nodes) > 1 else []
    needed = len(cluster.nodes) + len(voters) + (cluster.zookeeper_port is not None)
    numbers = itertools.count(port or choose_ports(needed, FIRST_PORT))
    cluster.ports = {node: next(numbers) for node in cluster.nodes}
    cluster.controller_ports = {node: next(numbers) for node in voters}
    if cluster.zookeeper_port is not None:
        cluster.zookeeper_port = next(numbers)
        cluster.zookeeper = f"127.0.0.1:{cluster.zookeeper_port}"
    return needed


def another(place: Place, found: ClusterFile) -> NodePlan:
    """Plans one more broker, with the next id and the next free port."""
    from ottla.cli.nodes.place import PlaceError
    from ottla.cli.nodes.plan import choose_ports, cluster_plan
    from ottla.errors import ErrorCode, KafkaError

    if len(found.voters) < 2 and found.zookeeper is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "a cluster that was started with one node decides alone and takes no other; start one with -n 3 in another directory",
        )
    node_id = max(*found.nodes, *found.removed) + 1
    if os.path.lexists(place.directory_of(node_id)):
        raise PlaceError(f"{place.directory_of(node_id)} is there already, and is no node's: move it away")
    taken = {*found.ports.values(), *found.controller_ports.values(), found.zookeeper_port or 0}
    port = choose_ports(1, max(taken) + 1)
    found.nodes.append(node_id)
    found.ports[node_id] = port
    plan = cluster_plan(place, found, node_id)
    os.makedirs(os.path.dirname(place.node_file(node_id, "data")), exist_ok=True)
    place.write_properties(node_id, plan.properties)
    return plan
