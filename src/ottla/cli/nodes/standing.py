"""How the cluster itself sees its nodes: which brokers serve, and which controller is active."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.cli.nodes.place import NodeStatus, PlaceState
from ottla.errors import OttlaError

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Standing:
    """``brokers`` are those that are not fenced, None where no node could be asked; ``problem`` is why something is not known."""

    brokers: frozenset[int] | None
    active_controller: int | None
    controllers: frozenset[int]
    problem: str | None

    def broker_of(self, node: NodeStatus) -> str:
        if self.brokers is None:
            return UNKNOWN
        return "alive" if node.node_id in self.brokers else "fenced"

    def controller_of(self, node: NodeStatus) -> str | None:
        if "controller" not in node.roles:
            return None
        if self.active_controller is None:
            return UNKNOWN
        return "active" if node.node_id == self.active_controller else "follower"


def standing_of(state: PlaceState, timeout_ms: int) -> Standing:
    """As the nodes that serve answer: DescribeCluster for the brokers, DescribeQuorum, which the active controller answers, for it."""
    from ottla.sync import Admin

    serving = [node.address for node in state.nodes if node.state == "serving" and node.address is not None]
    if not serving:
        return Standing(None, None, frozenset(), "no node serves; the cluster cannot be asked")
    brokers: frozenset[int] | None = None
    try:
        with Admin(serving, client_id="ottla-cli", request_timeout_ms=timeout_ms) as admin:
            brokers = frozenset(node.node_id for node in admin.describe_cluster().nodes)
            quorum = admin.describe_quorum()
    except OttlaError as error:
        what = "the cluster does not answer" if brokers is None else "no controller is active"
        return Standing(brokers, None, frozenset(), f"{what}: {error}")
    voters = frozenset(voter.replica_id for voter in quorum.current_voters)
    return Standing(brokers, quorum.leader_id, voters, None)
