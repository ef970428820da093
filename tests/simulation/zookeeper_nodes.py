"""Three shipped nodes as one cluster in ZooKeeper mode, and what must hold of what they log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from tests.simulation.failing_disks import DIRECTORIES
from tests.simulation.quorum_nodes import KILLED, NODES, REPLICATION, STOPPED, QuorumNode

from ottla.ports import World
from ottla.sim.cluster import PORT, Simulation
from ottla.sim.zookeeper import SimZooKeeper

SESSION_MS = 4000


class ZookeeperNode(QuorumNode):
    """Any of them may be the controller. Nothing is formatted before."""

    def __init__(
        self, simulation: Simulation, node: int, service: SimZooKeeper, properties: Mapping[str, str] = {}, *, host: str = ""
    ) -> None:
        super().__init__(simulation, node, host=host)
        self.service = service
        self._properties = (
            {
                "broker.id": str(node),
                "zookeeper.connect": "zookeeper:2181/cluster",
                "zookeeper.session.timeout.ms": str(SESSION_MS),
                "zookeeper.connection.timeout.ms": "60000",
                "ottla.zookeeper.request.bytes.max": "1500",
                "listeners": f"PLAINTEXT://{self.machine.name}:{PORT}",
                "log.dirs": ",".join(DIRECTORIES),
                "metadata.log.max.record.bytes.between.snapshots": "400",
                "group.initial.rebalance.delay.ms": "0",
            }
            | REPLICATION
            | dict(properties)
        )

    async def format(self, features: Mapping[str, int] = {}) -> None:
        pass

    def boot(self) -> World:
        return replace(super().boot(), coordination=self.service.coordination(self.machine.name))


def nodes_in_zookeeper(simulation: Simulation, properties: Mapping[str, str] = {}) -> list[ZookeeperNode]:
    service = SimZooKeeper(simulation.random("zookeeper"), delay_ms_max=5)
    return [ZookeeperNode(simulation, node, service, properties) for node in range(1, NODES + 1)]


def needless_deletions(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Znodes that were deleted because a process had ended, and it had not."""
    made: dict[int, set[int]] = {}
    killed: set[tuple[int, int]] = set()
    found = []
    for event in events:
        if event["event"] == "broker_znode_made":
            made.setdefault(int(event["path"].rpartition("/")[2]), set()).add(event["broker_epoch"])
        elif event["event"] in (KILLED, STOPPED):
            node = event["node" if event["event"] == KILLED else "node_id"]
            killed |= {(node, epoch) for epoch in made.get(node, ())}
        elif event["event"] == "broker_znode_deleted" and (event["broker_id"], event["broker_epoch"]) not in killed:
            found.append(f"the znode of broker {event['broker_id']} of epoch {event['broker_epoch']} was deleted, and it lived")
    return found


def shared_epochs(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Controller epochs that more than one controller has had."""
    epochs = [event["epoch"] for event in events if event["event"] == "controller_elected"]
    return [f"controller epoch {epoch} was given twice" for epoch in set(epochs) if epochs.count(epoch) > 1]
