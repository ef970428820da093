"""A careless copy of a broker's machine knocks while the broker lives, stands still, or is cut off: it never takes its place.

Whoever knocks so makes the controller ask on the connections of the one that is registered, and only a system that has restarted ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import pytest
import structlog
from tests.simulation.brokers_apart import BROKER_ID, broker
from tests.simulation.quorum_nodes import NODES, QuorumNode, format_broker, started
from tests.simulation.zookeeper_nodes import ZookeeperNode, nodes_in_zookeeper

from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import DATA_DIRECTORY, PORT, SimBroker, Simulation
from ottla.sim.loop import run

FAR_MS = 40


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


def copied(simulation: Simulation, original: SimBroker, properties: Mapping[str, str] = {}) -> SimBroker:
    """A machine with the same directories."""
    copy = broker(simulation, "copy", properties)
    for path, inode in original.machine.disk.files.items():
        copy.machine.disk.put(path, bytes(inode.written))
    return copy


async def serving(simulation: Simulation, original: SimBroker) -> list[QuorumNode]:
    """The broker has sent a heartbeat, and is watched."""
    nodes = [QuorumNode(simulation, node) for node in range(1, NODES + 1)]
    for node in nodes:
        await node.format()
        node.begin()
    await format_broker(original)
    await original.start()
    await asyncio.sleep(3)
    return nodes


async def is_refused(copy: SimBroker) -> None:
    with pytest.raises(KafkaError) as caught:
        await copy.start()
    assert caught.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def has_kept_its_place(events: Iterable[MutableMapping[str, Any]]) -> None:
    """The broker that was there, whoever knocked."""
    refused = [event for event in events if event["event"] == "broker_refused" and event["broker_id"] == BROKER_ID]
    assert len(refused) > 3, "it knocks again and again"
    assert not [event for event in events if event["event"] == "broker_fenced" and event.get("broker_id") == BROKER_ID]
    assert sum(event["event"] == "broker_registered" and event["broker_id"] == BROKER_ID for event in events) == 1


TROUBLES = [lives, stands_still, is_dark, is_refused_by_a_firewall]


@pytest.mark.parametrize("what", TROUBLES)
def test_a_copy_is_refused_as_long_as_nothing_proves_that_the_broker_is_dead(what: Callable[[Simulation, SimBroker], None]) -> None:
    async def main() -> None:
        simulation = Simulation(11)
        original = broker(simulation, "original")
        await serving(simulation, original)
        copy = copied(simulation, original)
        what(simulation, original)
        await is_refused(copy)

    with structlog.testing.capture_logs() as events:
        run(main())
    has_kept_its_place(events)


@pytest.mark.parametrize("advertised", ["original", "copy"])
@pytest.mark.parametrize("what", TROUBLES)
def test_a_copy_is_refused_by_controllers_that_have_all_started_again(
    what: Callable[[Simulation, SimBroker], None], advertised: str
) -> None:
    """They have seen nothing of the broker: its address does not lead to the copy, whatever that says of itself."""

    async def main() -> None:
        simulation = Simulation(11)
        original = broker(simulation, "original")
        nodes = await serving(simulation, original)
        copy = copied(simulation, original, {"advertised.listeners": f"PLAINTEXT://{advertised}:{PORT}"})
        what(simulation, original)
        await restart(nodes)
        await is_refused(copy)

    with structlog.testing.capture_logs() as events:
        run(main())
    has_kept_its_place(events)


async def restart(nodes: Iterable[QuorumNode]) -> None:
    for node in nodes:
        node.kill(power_cut=True)
    for node in nodes:
        node.begin()


@pytest.mark.parametrize("seed", [11, 15, 25])
def test_a_copy_is_refused_to_which_the_address_leads_of_a_broker_that_is_heard_from(seed: int) -> None:
    """A name that was changed, or a load balancer. The broker's machine is far away, so that the copy comes first.

    The controllers' machines have lost power: with seed 15 the broker waits for the answer to a heartbeat that never comes.
    """

    async def main() -> None:
        simulation = Simulation(seed)
        original = broker(simulation, "original", {"advertised.listeners": f"PLAINTEXT://copy:{PORT}"})
        nodes = await serving(simulation, original)
        copy = copied(simulation, original)
        knocking = asyncio.get_running_loop().create_task(is_refused(copy))
        await asyncio.sleep(1)
        for node in range(1, NODES + 1):
            simulation.fabric.slow_link("original", f"node-{node}", FAR_MS)
            simulation.fabric.slow_link(f"node-{node}", "original", FAR_MS)
        await restart(nodes)
        await knocking

    with structlog.testing.capture_logs() as events:
        run(main())
    assert any(event["event"] == "address_led_to_another_process" for event in events)
    has_kept_its_place(events)


def test_a_process_with_other_directories_waits_until_the_session_of_the_one_before_has_ended() -> None:
    """At the same address, of which no controller has seen anything. What it has is not what the other had, nor is it locked with it."""

    async def main() -> None:
        simulation = Simulation(11)
        original = broker(simulation, "original")
        nodes = await serving(simulation, original)
        original.kill(power_cut=False)
        original.machine.disk.replace(DATA_DIRECTORY)
        await format_broker(original)
        await restart(nodes)
        await is_refused(original)

    with structlog.testing.capture_logs() as events:
        run(main())
    has_kept_its_place(events)


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
