"""Which parts of a cluster this process plays, as a KRaft properties file says it, or one of Kafka's ZooKeeper mode.

Without a word about controllers, a broker is its own one, and the only voter of its metadata log; without a listener for controllers no
other one can join it. The only voter formats its directories itself. A node of several plays what ``process.roles`` says, among the
voters of ``controller.quorum.voters``; a broker may have some ``controller.quorum.bootstrap.servers`` instead, which know them.

Source: KIP-500, KIP-595, KIP-853 (controller.quorum.bootstrap.servers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError


class Role(StrEnum):
    """A role of a process in its cluster; also, the kind of node that a listener is for."""

    BROKER = "broker"
    CONTROLLER = "controller"


_VOTER = re.compile(r"(\d+)@([^@;\s]+):(\d+)")


class HomeKind(StrEnum):
    """The kind of place where the truth about the node's cluster lives (``home.py``)."""

    LONE = "lone"
    """In a log with one voter: the node is the whole cluster for ever, and needs no other."""
    QUORUM = "quorum"
    """In a log of which a majority of the voters has everything."""
    ZOOKEEPER = "zookeeper"
    """In ZooKeeper, where the controller is elected: every broker may be it, and there are no voters."""


class NodeRoles(Struct, frozen=True):
    """The roles of one process, and the addresses of the voters.

    Without ``voters`` a node of a quorum has to ask the ``bootstrap`` servers for them.
    """

    roles: frozenset[Role]
    voters: Mapping[int, tuple[str, int]]
    home: HomeKind
    bootstrap: tuple[tuple[str, int], ...] = ()

    formats_itself: bool = True
    """Its directories need not be formatted before its first start: no other voter relies on what it remembers."""

    @property
    def is_broker(self) -> bool:
        return Role.BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return Role.CONTROLLER in self.roles


def read_roles(config: BrokerConfig) -> NodeRoles:
    """Returns what the configuration says; INVALID_CONFIG for what contradicts itself, and for what is not served."""
    roles, faults = roles_and_faults(config)
    for fault in faults:
        raise fault
    return roles


def roles_and_faults(config: BrokerConfig) -> tuple[NodeRoles, list[KafkaError]]:
    """Returns the roles, and what is wrong with a node that is known to have them. INVALID_CONFIG where the roles are not known."""
    given = config["process.roles"]
    voters = _voters(config)
    node_id = config.node_id
    if config["zookeeper.connect"]:
        if given is not None or voters:
            other = "process.roles" if given is not None else "controller.quorum.voters"
            raise _refused(f"zookeeper.connect={config['zookeeper.connect']}", f"and {other} exclude each other: one of them is the home")
        return NodeRoles(frozenset(Role), {}, HomeKind.ZOOKEEPER), []
    if not voters:
        if given is not None and "broker" not in given:
            raise _refused(f"process.roles={','.join(given)}", "needs controller.quorum.voters, with this node among them")
        servers = config["controller.quorum.bootstrap.servers"]
        if servers and given is not None and "controller" not in given:
            _check_listener(config)
            _check_node_id(config, "controller.quorum.bootstrap.servers")
            return NodeRoles(frozenset({Role.BROKER}), {}, HomeKind.QUORUM, tuple(map(_server, servers)), formats_itself=False), []
        if given == ["broker"] and not servers:
            alone = "without them it would begin a cluster of its own, which process.roles=broker,controller asks for"
            raise _refused("process.roles=broker", f"needs controller.quorum.voters, the same as the controllers have; {alone}")
        if len(servers) > 1:
            raise _refused("controller.quorum.bootstrap.servers", "lists several servers; a controller needs controller.quorum.voters")
        if not servers or not _has_controller_listener(config):
            return NodeRoles(frozenset(Role), {}, HomeKind.LONE), []
        voters = {node_id: _server(servers[0])}
    roles = frozenset(map(Role, given)) if given is not None else frozenset(Role)
    faults = []
    if not config.has_node_id and (len(voters) > 1 or Role.CONTROLLER not in roles):
        faults.append(_no_node_id("controller.quorum.voters"))
    elif Role.CONTROLLER in roles and node_id not in voters:
        faults.append(_refused(f"controller.quorum.voters={_text(voters)}", f"does not have this node, whose node.id is {node_id}"))
    elif Role.CONTROLLER not in roles and node_id in voters:
        text = f"has this node, whose node.id is {node_id}, which is no controller"
        faults.append(_refused(f"controller.quorum.voters={_text(voters)}", text))
    if len(voters) == 1 and len(roles) == 2 and not _has_controller_listener(config):
        return NodeRoles(roles, voters, HomeKind.LONE), faults
    if not config["controller.listener.names"]:
        faults.append(_no_listener_names())
    elif Role.CONTROLLER in roles and not _has_controller_listener(config):
        names = ",".join(config["controller.listener.names"])
        where = f"{config['controller.listener.names'][0]}://HOST:PORT"
        advice = f"a controller is reached by one: add {where}, with the address in controller.quorum.voters"
        faults.append(_refused("listeners", f"has no listener of controller.listener.names={names}; {advice}"))
    formats_itself = set(voters) == {node_id} and Role.BROKER in roles
    return NodeRoles(roles, voters, HomeKind.QUORUM, formats_itself=formats_itself), faults


def _check_node_id(config: BrokerConfig, key: str) -> None:
    """Refuses the default: two nodes would have one id, and two controllers of one id would both vote."""
    if not config.has_node_id:
        raise _no_node_id(key)


def _no_node_id(key: str) -> KafkaError:
    return _refused("node.id", f"is not set, and {key} names other nodes: set it to a number that no other node of the cluster has")


def _has_controller_listener(config: BrokerConfig) -> bool:
    names = {name.upper() for name in config["controller.listener.names"] or ()}
    return any(listener.partition("://")[0].upper() in names for listener in config["listeners"])


def _check_listener(config: BrokerConfig) -> None:
    if not config["controller.listener.names"]:
        raise _no_listener_names()


def _no_listener_names() -> KafkaError:
    return _refused("controller.listener.names", "is not set: nodes of several reach their controllers by a listener of its own")


def _server(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise _refused(f"controller.quorum.bootstrap.servers={text}", "is not of the form host:port")
    return host.strip("[]"), int(port)


def voter_faults(config: BrokerConfig) -> Iterator[KafkaError]:
    """Yields what is wrong with each voter of ``controller.quorum.voters``."""
    yield from _read_voters(config)[1]


def _voters(config: BrokerConfig) -> dict[int, tuple[str, int]]:
    found, faults = _read_voters(config)
    for fault in faults:
        raise fault
    return found


def _read_voters(config: BrokerConfig) -> tuple[dict[int, tuple[str, int]], list[KafkaError]]:
    found: dict[int, tuple[str, int]] = {}
    faults = []
    for voter in config["controller.quorum.voters"]:
        matched = _VOTER.fullmatch(voter)
        if matched is None:
            faults.append(_refused(f"controller.quorum.voters={voter}", "is not of the form id@host:port, with commas between voters"))
        elif int(matched[1]) in found:
            faults.append(_refused(f"controller.quorum.voters={voter}", "lists an id twice"))
        else:
            found[int(matched[1])] = matched[2].strip("[]"), int(matched[3])
    return found, faults


def _text(voters: Mapping[int, tuple[str, int]]) -> str:
    return ",".join(f"{voter}@{host}:{port}" for voter, (host, port) in voters.items())


def _refused(what: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{what} {why}")
