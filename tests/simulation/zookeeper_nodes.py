"""The nodes of ``replicated_nodes`` in ZooKeeper mode: the same troubles, and those of disks, of sessions and of the service."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.failing_disks import DIRECTORIES, FailingDisks, unexpected_errors
from tests.simulation.quorum_nodes import KILLED, NODES, STOPPED, WORK_SECONDS, QuorumNode, Run
from tests.simulation.replicated_nodes import REPLICATION, Kinds, explore_replication

from ottla.ports import World
from ottla.sim.cluster import PORT, Simulation
from ottla.sim.zookeeper import SimZooKeeper

SESSION_MS = 4000
AWAY_SECONDS_MAX = 6.0


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


async def trouble_of_zookeeper(simulation: Simulation, nodes: list[QuorumNode], result: Run) -> None:
    """The service is away, a host does not reach it, a session ends, answers are lost. All is well at the end."""
    rng, states = simulation.random("trouble of zookeeper"), result.states
    loop = asyncio.get_running_loop()
    end = loop.time() + WORK_SECONDS
    first = nodes[0]
    assert isinstance(first, ZookeeperNode)
    service = first.service
    await asyncio.sleep(8)
    while loop.time() < end:
        kind = rng.choice(["away", "cut off", "expired", "lost answers"])
        states[f"zookeeper: {kind}"] += 1
        host = _host(rng, nodes)
        if kind == "away":
            service.stop()
            await asyncio.sleep(rng.uniform(0.1, AWAY_SECONDS_MAX))
            service.start()
        elif kind == "cut off":
            service.cut(host)
            await asyncio.sleep(rng.uniform(0.1, AWAY_SECONDS_MAX))
            service.heal(host)
        elif kind == "expired":
            for session_id in service.sessions_of(host):
                service.expire(session_id)
        else:
            service.loses_answers = True
            await asyncio.sleep(rng.uniform(0.01, 1))
            service.loses_answers = False
            service.stop()
            service.start()
        await asyncio.sleep(rng.uniform(0.5, 4))


def failing_disks(simulation: Simulation, nodes: list[QuorumNode], result: Run) -> Kinds:
    """As with a quorum; and one fails whose broker cannot say so for a while."""
    disks, rng = FailingDisks(simulation, nodes, result), simulation.random("failing disks out of reach")

    async def out_of_reach(node: QuorumNode) -> None:
        assert isinstance(node, ZookeeperNode)
        host = node.machine.name

        async def reached_again() -> None:
            await asyncio.sleep(rng.uniform(0.5, AWAY_SECONDS_MAX))
            node.service.heal(host)

        node.service.cut(host)
        healing = asyncio.ensure_future(reached_again())
        await disks.fail(node)
        await healing

    return {**disks.kinds, "disk fails out of reach": out_of_reach}


def _host(rng: random.Random, nodes: list[QuorumNode]) -> str:
    """The controller's half of the time: what happens to it is what matters most."""
    active = [node for node in nodes if node.broker is not None and node.broker.controller.is_active]
    return (active[0] if active and rng.random() < 0.5 else nodes[rng.randrange(NODES)]).machine.name


def explore_zookeeper(seed: int) -> Run:
    """One run. ``findings`` is empty when every promise of acks=all was kept, and no living broker was taken for dead.

    No power is cut: without eligible leader replicas, which have no place in Kafka's znodes, whoever comes back first of an ISR leads.
    """
    result = explore_replication(
        seed, nodes_in_zookeeper, trouble_of_zookeeper, failing_disks, may_have_elr=False, errors_of=unexpected_errors
    )
    result.findings += needless_deletions(result.events)
    result.findings += shared_epochs(result.events)
    return result


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
