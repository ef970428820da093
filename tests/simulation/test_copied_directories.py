"""A careless copy of a broker's machine knocks while the broker lives, stands still, or is cut off: it never takes its place.

Whoever knocks so makes the controller ask on the connections of the one that is registered, and only a system that has restarted ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import structlog
from tests.simulation.quorum_nodes import CLUSTER_ID, CONTROLLER_PORT, NODES, QuorumNode, started
from tests.simulation.zookeeper_nodes import ZookeeperNode, nodes_in_zookeeper

from ottla.broker.formatting import format_log_dirs
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import DATA_FOLDER, PORT, SimBroker, Simulation
from ottla.sim.loop import run

BROKER_ID = 4
KNOCKS_MS = 5000
"""Less than the session of a broker that says nothing."""


def broker(simulation: Simulation, host: str) -> SimBroker:
    properties = {
        "node.id": str(BROKER_ID),
        "process.roles": "broker",
        "controller.quorum.voters": ",".join(f"{node}@node-{node}:{CONTROLLER_PORT}" for node in range(1, NODES + 1)),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{PORT}",
        "log.dirs": DATA_FOLDER,
        "initial.broker.registration.timeout.ms": str(KNOCKS_MS),
    }
    made = SimBroker(simulation, properties, name=host)
    made._properties = properties
    return made


async def format_broker(made: SimBroker) -> None:
    world = made.machine.boot()
    await made.machine.run(format_log_dirs(world, BrokerConfig(dict(made._properties)), cluster_id=CLUSTER_ID, features={}))
    made.machine.end_process()


def lives(simulation: Simulation, original: SimBroker) -> None:
    pass


def stands_still(simulation: Simulation, original: SimBroker) -> None:
    original.machine.pause_process()


def is_dark(simulation: Simulation, original: SimBroker) -> None:
    simulation.fabric.darken(original.machine.name)


def is_refused_by_a_firewall(simulation: Simulation, original: SimBroker) -> None:
    """What the controllers send to it is answered with a reset; what it sends arrives."""
    for node in range(1, NODES + 1):
        simulation.fabric.refuse(f"node-{node}", original.machine.name)


@pytest.mark.parametrize("what", [lives, stands_still, is_dark, is_refused_by_a_firewall])
def test_a_copy_is_refused_as_long_as_nothing_proves_that_the_broker_is_dead(what: Callable[[Simulation, SimBroker], None]) -> None:
    async def main() -> None:
        simulation = Simulation(11)
        nodes = [QuorumNode(simulation, node) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format()
            node.begin()
        original, copy = broker(simulation, "original"), broker(simulation, "copy")
        await format_broker(original)
        await original.start()
        await asyncio.sleep(3)  # it has sent a heartbeat, and is watched
        for path, inode in original.machine.disk.files.items():
            copy.machine.disk.put(path, bytes(inode.written))
        what(simulation, original)
        with pytest.raises(KafkaError) as caught:
            await copy.start()
        assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION

    with structlog.testing.capture_logs() as events:
        run(main())
    refused = [event for event in events if event["event"] == "broker_refused"]
    assert len(refused) > 3, "it knocks again and again"
    assert not [event for event in events if event["event"] == "broker_fenced" and event.get("broker_id") == BROKER_ID]
    assert sum(event["event"] == "broker_registered" and event["broker_id"] == BROKER_ID for event in events) == 1


def test_in_zookeeper_mode_a_copy_is_refused_that_advertises_the_address_of_the_broker_that_lives() -> None:
    """It deleted the znode of the other, which deleted its own, and so on."""

    async def main() -> None:
        simulation = Simulation(11)
        nodes = nodes_in_zookeeper(simulation)
        for node in nodes:
            node.begin()
        await started(nodes)
        original, service = nodes[2], nodes[2].service
        copy = ZookeeperNode(simulation, 3, service, host="copy")
        copy._properties = {**copy._properties, "advertised.listeners": f"PLAINTEXT://{original.machine.name}:{PORT}"}
        for path, inode in original.machine.disk.files.items():
            copy.machine.disk.put(path, bytes(inode.written))
        with pytest.raises(KafkaError) as caught:
            await copy.start()
        assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION

    with structlog.testing.capture_logs() as events:
        run(main())
    assert sum(event["event"] == "broker_znode_made" and event["path"] == "/brokers/ids/3" for event in events) == 1
    assert not [event for event in events if event["event"] in ("broker_znode_deleted", "broker_znode_of_an_earlier_session")]
