"""How the cluster itself sees its nodes: which brokers serve, and which controller is active."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli.client_settings import client_settings
from ottla.cli.missing_rights import missing_right
from ottla.cli.nodes.place import NodeStatus, PlaceState
from ottla.cli.quorum_health import ended_voters
from ottla.cli.quorum_states import (
    ENDED,
    NONE_IN_ZOOKEEPER,
    NOT_SHOWN,
    SILENT,
    fetched_ms_ago,
    is_silent,
    leader_of,
    may_not_look,
    observers_of,
)
from ottla.cli.quorum_voters import configured_voters, refusing
from ottla.client.admin.brokers import ClusterDescription
from ottla.errors import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client.admin import QuorumDescription
    from ottla.sync import Admin

UNKNOWN = "unknown"
DOWN = "down"
SERVES = "serves"
QUORUM = "quorum"


@dataclass(frozen=True, slots=True)
class Standing:
    """``brokers`` are those that are not fenced, None where no node could be asked; ``problem`` is why something is not known.

    ``fetched_ms_ago`` has each voter, and ``silent`` the voters that do not fetch (``quorum_states.py``).
    """

    brokers: frozenset[int] | None
    active_controller: int | None
    problem: str | None
    is_in_zookeeper: bool = False
    registered: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    fetched_ms_ago: Mapping[int, int | None] = field(default_factory=dict)

    def broker_of(self, node: NodeStatus) -> str:
        if self.brokers is None:
            return UNKNOWN
        if node.node_id in self.brokers:
            return "alive"
        return "fenced" if self.is_in_zookeeper or node.node_id in self.registered else "unregistered"

    def controller_of(self, node: NodeStatus) -> str | None:
        if self.is_in_zookeeper:
            return "active" if node.node_id == self.active_controller else "candidate"
        if "controller" not in node.roles:
            return None
        if node.pid is None:
            return DOWN
        if self.active_controller is None:
            return UNKNOWN
        if node.node_id in self.silent:
            return SILENT
        return "active" if node.node_id == self.active_controller else "follower"


def standing_of(state: PlaceState, timeout_ms: int) -> Standing:
    """Asks the nodes that serve: DescribeCluster for the brokers, DescribeQuorum, which the active controller answers, for it."""
    from ottla.sync import Admin

    serving = [node.address for node in state.nodes if node.state == "serving" and node.address is not None]
    if not serving:
        return Standing(None, None, "no node serves; the cluster cannot be asked")
    brokers: frozenset[int] | None = None
    registered: frozenset[int] = frozenset()
    try:
        with Admin(serving, **client_settings(request_timeout_ms=timeout_ms)) as admin:
            described = admin.describe_cluster(include_fenced=True)
            registered = frozenset(node.node_id for node in described.nodes)
            brokers = registered - described.fenced
            if state.home != QUORUM:
                active = described.controller_id if described.controller_id >= 0 else None
                return Standing(brokers, active, _problem_of_zookeeper(active), is_in_zookeeper=True)
            quorum = admin.describe_quorum()
    except OttlaError as error:
        problem = f"the cluster does not answer: {error}" if brokers is None else _problem(error)
        return Standing(brokers, None, problem, registered=registered)
    silent = frozenset(voter.node_id for voter in quorum.voters if is_silent(quorum, voter, described.fenced))
    return Standing(
        brokers,
        quorum.leader_id,
        None,
        registered=registered,
        silent=silent,
        fetched_ms_ago={voter.node_id: fetched_ms_ago(quorum, voter) for voter in quorum.voters},
    )


SEEN_COLUMNS = ("node", "address", "rack", "broker", "controller", "metadata_lag", "fetched_ms_ago")


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """A cluster whose processes are not known: what it says of itself. ``rows`` have the columns ``SEEN_COLUMNS``."""

    cluster_id: str
    active_controller: int | None
    rows: list[tuple[Any, ...]]
    problem: str | None = None


def seen_from_outside(bootstrap: str, timeout_ms: int) -> SeenCluster:
    """Returns registered brokers, voters, and followers of the metadata log."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings(request_timeout_ms=timeout_ms)) as admin:
        described = admin.describe_cluster(include_fenced=True)
        brokers = {node.node_id: node for node in described.nodes}
        states = {node_id: "fenced" if node_id in described.fenced else "alive" for node_id in brokers}
        try:
            quorum = admin.describe_quorum()
        except OttlaError as error:
            if isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
                return _seen_in_zookeeper(described)
            controllers: dict[int, str] = {}
            if not may_not_look(error):  # no controller is active to fence brokers that have ended
                states |= dict.fromkeys(refusing(_addresses_of(described)), DOWN)
                controllers = _controllers(admin, [node_id for node_id in sorted(brokers) if states[node_id] == "alive"])
            known: list[tuple[Any, ...]] = []
            for node_id in sorted(brokers.keys() | controllers.keys()):
                node, controller = brokers.get(node_id), controllers.get(node_id) if controllers else UNKNOWN
                address = None if node is None else f"{node.host}:{node.port}"
                known.append((node_id, address, node and node.rack, states.get(node_id), controller, None, None))
            return SeenCluster(described.cluster_id, None, known, _problem(error))
        voters = {voter.node_id: voter for voter in quorum.voters}
        ended = _ended(admin, quorum, brokers.keys() - described.fenced, described.fenced)
    observers = observers_of(quorum, brokers.keys())
    replicas = {observer.node_id: observer for observer in observers} | voters
    end_offset = leader_of(quorum).end_offset
    rows: list[tuple[Any, ...]] = []
    for node_id in sorted(brokers.keys() | replicas.keys()):
        node, replica = brokers.get(node_id), replicas.get(node_id)
        controller = None
        if (voter := voters.get(node_id)) is not None:
            state = ENDED if node_id in ended else SILENT if is_silent(quorum, voter, described.fenced) else "follower"
            controller = "active" if node_id == quorum.leader_id else state
        lag = None if replica is None or replica.end_offset < 0 else end_offset - replica.end_offset
        ago_ms = None if replica is None else fetched_ms_ago(quorum, replica)
        address = None if node is None else f"{node.host}:{node.port}"
        rows.append((node_id, address, node and node.rack, states.get(node_id), controller, lag, ago_ms))
    return SeenCluster(described.cluster_id, quorum.leader_id, rows)


def states_of(admin: Admin, described: ClusterDescription) -> tuple[dict[int, str], str | None]:
    """Returns the brokers that do not serve, ``fenced`` or ``down``; and why that is not all that may be wrong: no controller is active."""
    states = dict.fromkeys(described.fenced, "fenced")
    problem: str | None
    try:
        admin.describe_quorum()
        return states, None
    except OttlaError as error:
        if may_not_look(error):
            return states, None
        if isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
            problem = _problem_of_zookeeper(described.controller_id if described.controller_id >= 0 else None)
            if problem is None:
                return states, None
        else:
            problem = _problem(error)
    states |= dict.fromkeys(refusing(_addresses_of(described)), DOWN)
    return states, f"STATE is as brokers last knew it, but for {DOWN}: {problem}; `ottla cluster health` says what to start"


def _addresses_of(described: ClusterDescription) -> dict[int, str]:
    """Returns the addresses of the brokers that are not fenced."""
    return {node.node_id: f"{node.host}:{node.port}" for node in described.nodes if node.node_id not in described.fenced}


def _controllers(admin: Admin, brokers: Collection[int]) -> dict[int, str]:
    """Returns the voters that these brokers are configured with: those where nothing listens have ended, of others nothing is known."""
    addresses = configured_voters(admin, brokers)
    return dict.fromkeys(addresses, UNKNOWN) | dict.fromkeys(refusing(addresses), ENDED)


def _ended(admin: Admin, quorum: QuorumDescription, alive: Collection[int], fenced: Collection[int]) -> list[int]:
    """Returns the controllers of their own whose processes have ended: the active one takes them for followers for seconds."""
    found = {voter.node_id: is_silent(quorum, voter, fenced) for voter in quorum.voters if voter.node_id not in alive}
    if not found.keys() - {quorum.leader_id}:
        return []
    addresses = configured_voters(admin, sorted(alive))
    silent, following = (
        {node_id: addresses[node_id] for node_id, so in found.items() if so is is_so and node_id in addresses} for is_so in (True, False)
    )
    return [*refusing(silent), *ended_voters(admin, quorum.leader_id, following)]


def _problem_of_zookeeper(active: int | None) -> str | None:
    return None if active is not None else f"no controller is active: {NONE_IN_ZOOKEEPER}"


def _problem(error: OttlaError) -> str:
    """Returns why brokers that serve have not shown the quorum."""
    if may_not_look(error):
        return f"{NOT_SHOWN}{missing_right(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) or ''}"
    return f"no controller is active: {error}"


def _seen_in_zookeeper(described: ClusterDescription) -> SeenCluster:
    """Returns brokers that have no quorum to describe: any of them may be the controller, and one is."""
    active = described.controller_id if described.controller_id >= 0 else None
    rows: list[tuple[Any, ...]] = [
        (node.node_id, f"{node.host}:{node.port}", node.rack, "alive", "active" if node.node_id == active else "candidate", None, None)
        for node in described.nodes
    ]
    return SeenCluster(described.cluster_id, active, rows, _problem_of_zookeeper(active))
