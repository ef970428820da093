"""``ottla broker start --cores N``: a broker is a core, so N of them use N cores, from one configuration.

What brokers cannot share is derived from what the configuration gives the first: ids, ports of listeners and of the pages for operators
count up, each log directory has a directory ``node-N`` for each broker. All are in the rack of this host, so that replicas are placed on
other hosts where there are some. They are a cluster of their own: the first three are its controllers. With a single one, the death of
one process would stop every change of the cluster; three see each change on one disk three times, which is cheap beside that.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import click

from ottla.broker.requests.listeners import EVERY_INTERFACE, ListenerAddress, controller_names, parse_listener
from ottla.cli.nodes.place import ClusterFile, Place, PlaceError
from ottla.cli.nodes.plan import CONTROLLER, HOST, NodePlan, choose_ports, voters_among
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError

FIRST_CONTROLLER_PORT: Final = 19_092
CORES_MAX: Final = 1024
_DERIVED: Final = ("broker.id", "log.dir", "controller.quorum.bootstrap.servers", "cluster.id")
"""Replaced by other keys, or said to the format alone."""
LONE_MARK: Final = "meta.properties"


def core_count(text: str) -> int:
    """Returns the number, or with ``auto`` the cores that this process may run on, fewer than the machine's under taskset or a cpuset."""
    if text == "auto":
        return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if not text.isdigit() or not 1 <= int(text) <= CORES_MAX:
        raise click.UsageError(f"--cores {text}: expected a number from 1 to {CORES_MAX}, or auto")
    return int(text)


def described(place: Place, config: BrokerConfig, count: int, *, is_auto: bool, new_id: Callable[[], str]) -> ClusterFile:
    """Returns the brokers that are here, and the new ones. PlaceError for a directory of something else, and for fewer than there are."""
    found, first = place.read(), config.node_id
    if found is None:
        _check_unused(place, config.log_dirs)
        nodes = list(range(first, first + count))
        return ClusterFile("cores", config["cluster.id"] or new_id(), nodes, voters_among(nodes))
    if found.kind != "cores":
        raise PlaceError(f"{place.path} has a cluster of `ottla cluster start`; start it by that, or name another directory in log.dirs")
    if found.nodes[0] != first:
        raise PlaceError(
            f"{place.path} has the brokers {found.nodes[0]} to {found.nodes[-1]}, and node.id={first} is not the first of them"
        )
    if config["cluster.id"] not in (None, found.cluster_id):
        raise PlaceError(f"{place.path} belongs to cluster {found.cluster_id}, not to {config['cluster.id']}")
    if count < len(found.nodes) and not is_auto:
        text = f"{place.path} has {len(found.nodes)} brokers: with --cores {count} the partitions of the others would be offline"
        raise PlaceError(f"{text}; start it with --cores {len(found.nodes)}")
    found.nodes += range(found.nodes[-1] + 1, first + count)
    return found


def _check_unused(place: Place, log_dirs: list[str]) -> None:
    for path in log_dirs:
        if os.path.exists(os.path.join(path, LONE_MARK)):
            text = f"{path} has the data of a single broker, which cannot be divided"
            raise PlaceError(f"{text}: start it without --cores, or name another directory in log.dirs")
    if place.foreign_entries:
        raise PlaceError(f"{place.path} has {place.foreign_entries[0]} and no brokers of --cores; name an empty directory in log.dirs")


def refuse_lone(log_dirs: list[str]) -> None:
    """Raises PlaceError where a broker alone would not find the data that is there."""
    for path in log_dirs:
        found = Place(path).read()
        if found is not None:
            way_out = f"`ottla broker start --cores {len(found.nodes)}`" if found.kind == "cores" else "`ottla cluster start`"
            raise PlaceError(f"{path} has {len(found.nodes)} brokers; start them by {way_out}, or name another directory in log.dirs")


@dataclass(frozen=True, slots=True)
class _Ports:
    """The ports of the first broker; each of the others counts them up. The address of the admin pages keeps what precedes its port."""

    broker: list[ListenerAddress]
    controller: ListenerAddress
    admin: tuple[str, int] | None


def cores_plans(cluster: ClusterFile, given: Mapping[str, str]) -> list[NodePlan]:
    """Returns all brokers' plans, by their ids. KafkaError INVALID_CONFIG for what several of them cannot have."""
    config = BrokerConfig(given)
    _check_roles(config)
    ports = _ports(config, len(cluster.nodes), len(cluster.voters))
    host = HOST if ports.controller.host in EVERY_INTERFACE else ports.controller.host
    bracketed = f"[{host}]" if ":" in host else host
    voters = ",".join(f"{voter}@{bracketed}:{ports.controller.port + index}" for index, voter in enumerate(cluster.voters))
    shared = {key: value for key, value in given.items() if key not in _DERIVED}
    shared |= {
        "controller.quorum.voters": voters,
        "controller.listener.names": ports.controller.name,
        "broker.rack": config["broker.rack"] or socket.gethostname(),
    }
    advertised = [
        parse_listener(text) for text in config["advertised.listeners"] or () if parse_listener(text).name != ports.controller.name
    ]
    plans = []
    for index, node_id in enumerate(cluster.nodes):
        is_voter = node_id in cluster.voters
        bound = [_moved(listener, index) for listener in ports.broker]
        if is_voter:
            bound.append(_moved(ports.controller, index))
        log_dirs = [os.path.join(os.path.abspath(path), f"node-{node_id}") for path in config.log_dirs]
        roles = ["broker", "controller"] if is_voter else ["broker"]
        own = {
            "node.id": str(node_id),
            "process.roles": ",".join(roles),
            "listeners": ",".join(map(_text, bound)),
            "log.dirs": ",".join(log_dirs),
        }
        if advertised:
            own["advertised.listeners"] = ",".join(_text(_moved(listener, index)) for listener in advertised)
        if ports.admin is not None:
            admin_host, admin_port = ports.admin
            own["ottla.admin.listener"] = f"{admin_host}{admin_port + index if admin_port else 0}"
        addresses = [(listener.host, listener.port) for listener in bound]
        controller = f"{bracketed}:{ports.controller.port + index}" if is_voter else None
        plans.append(NodePlan(node_id, roles, shared | own, log_dirs, addresses, controller))
    return plans


def _check_roles(config: BrokerConfig) -> None:
    if config["process.roles"] is not None and "broker" not in config["process.roles"]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "process.roles=controller: a controller alone uses one core; start it without --cores")
    others = [voter for voter in config["controller.quorum.voters"] if voter.partition("@")[0] != str(config.node_id)]
    if others or len(config["controller.quorum.bootstrap.servers"]) > 1:
        key = "controller.quorum.voters" if others else "controller.quorum.bootstrap.servers"
        text = f"{key} names other nodes, and the brokers of --cores are a cluster of their own"
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{text}: give each broker of a larger cluster a configuration of its own")


def _ports(config: BrokerConfig, count: int, voter_count: int) -> _Ports:
    own = controller_names(config)
    parsed = [parse_listener(text) for text in config["listeners"]]
    broker = [listener for listener in parsed if listener.name not in own]
    controllers = [listener for listener in parsed if listener.name in own]
    admin = _admin(config["ottla.admin.listener"])
    ranges = [(listener.name, listener.port) for listener in broker if listener.port]
    if admin is not None and admin[1]:
        ranges.append(("ottla.admin.listener", admin[1]))
    ranges.sort(key=lambda item: item[1])
    for (name, port), (other, other_port) in pairwise(ranges):
        if other_port < port + count:
            text = f"{other} has port {other_port}, and {count} brokers have {name} at the ports {port} to {port + count - 1}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{text}; move {other} to {port + count} or above")
    controller = controllers[0] if controllers else ListenerAddress(CONTROLLER, HOST, 0)
    end = controller.port + voter_count
    if not controller.port or any(port < end and controller.port < port + count for _, port in ranges):
        first = ranges[-1][1] + count if ranges else choose_ports(voter_count, FIRST_CONTROLLER_PORT)
        controller = ListenerAddress(controller.name, controller.host, first)
    return _Ports(broker, controller, admin)


def _admin(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    if not port.isdigit():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"ottla.admin.listener={text} is not of the form host:port")
    return host + colon, int(port)


def _moved(listener: ListenerAddress, index: int) -> ListenerAddress:
    return ListenerAddress(listener.name, listener.host, listener.port + index if listener.port else 0)


def _text(listener: ListenerAddress) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"
