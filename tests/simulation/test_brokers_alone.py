"""Brokers that are no controllers, of which a standby controller knows by the connections that they keep to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import structlog
from tests.simulation.quorum_nodes import NODES, QuorumNode, broker_alone, format_broker, needless_fences, started, with_time

from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.connection import SimConnection
from ottla.sim.loop import run
from ottla.sim.process import Process
from ottla.tls import TlsClient

FIRST, COUNT = 4, 2
QUIET_SECONDS = 3
FAULTS_SECONDS = 12
FETCH_TIMEOUT_MS = 6000
"""So long brokers look to a controller that says nothing: its successor is elected after two seconds."""
AWAY_SECONDS, BACK_SECONDS = 60, 10
ATTEMPTS_MAX = 7 * (AWAY_SECONDS + BACK_SECONDS) // 5 + 40
"""A probe makes seven at most, and there is one in five seconds after the first few."""
Fault = Callable[[QuorumNode], None]
Events = list[Mapping[str, Any]]


async def serving(simulation: Simulation, properties: Mapping[str, str] = {}) -> tuple[list[QuorumNode], list[SimBroker]]:
    """Three controllers, and brokers beside them, which have been heard and are watched."""
    nodes = [QuorumNode(simulation, node) for node in range(1, NODES + 1)]
    for node in nodes:
        await node.format()
        node.begin()
    await started(nodes)
    given = {"controller.quorum.fetch.timeout.ms": str(FETCH_TIMEOUT_MS)} | dict(properties)
    brokers = [broker_alone(simulation, number, f"broker-{number}", given) for number in range(FIRST, FIRST + COUNT)]
    for broker in brokers:
        await format_broker(broker)
        await broker.start()
    await asyncio.sleep(QUIET_SECONDS)
    return nodes, brokers


def dies(node: QuorumNode) -> None:
    node.kill(power_cut=False)


def loses_power(node: QuorumNode) -> None:
    node.kill(power_cut=True)


def stands_still(node: QuorumNode) -> None:
    node.machine.pause_process()


@pytest.mark.parametrize("fault", [dies, loses_power, stands_still])
def test_no_broker_is_fenced_when_the_next_controller_cannot_reach_it_and_it_has_not_heard_of_that_one(fault: Fault) -> None:
    """A firewall refuses what the standby controllers send to brokers; and the active controller is lost."""

    async def main() -> None:
        nodes, brokers = await serving(simulation)
        [active] = [node for node in nodes if node.broker is not None and node.broker.controller.is_active]
        for standby in nodes:
            if standby is not active:
                for broker in brokers:
                    simulation.fabric.refuse(standby.machine.name, broker.machine.name)
                    simulation.fabric.break_connections(standby.machine.name, opened_to=broker.machine.name)
        await asyncio.sleep(1)
        fault(active)
        await asyncio.sleep(FAULTS_SECONDS)
        others = [node for node in nodes if node is not active]
        assert any(node.broker is not None and node.broker.controller.is_active for node in others)

    simulation = Simulation(7)
    with structlog.testing.capture_logs(processors=[with_time]) as events:
        run(main())
    assert not needless_fences(events)
    watched = {event["broker_id"] for event in events if event["event"] == "broker_connection_ended"}
    assert watched >= {FIRST, FIRST + 1}, "the standby controllers have lost the brokers"


def test_a_broker_that_has_died_is_fenced_at_once_all_the_same() -> None:
    async def main() -> None:
        _, brokers = await serving(simulation)
        brokers[0].kill(power_cut=False)
        await asyncio.sleep(1)

    simulation = Simulation(8)
    with structlog.testing.capture_logs() as events:
        run(main())
    fenced = [(event["broker_id"], event["reason"]) for event in events if event["event"] == "broker_fenced"]
    assert fenced == [(FIRST, "its process has ended")]


def hears(node: QuorumNode, broker_id: int) -> bool:
    """Whether a connection is open that the broker has made to the node, which is no active controller."""
    assert node.broker is not None
    return node.broker.parts.home.callers.hears(broker_id)


def test_the_connection_is_made_again_to_a_controller_that_was_away() -> None:
    """One that was killed ends it; one whose machine has lost power does when it is asked. While it is away it is not asked often."""

    async def main() -> None:
        nodes, brokers = await serving(simulation)
        [standby, *_] = [node for node in nodes if node.broker is not None and not node.broker.controller.is_active]
        assert hears(standby, FIRST)
        attempts, connect = Counter[tuple[str, str]](), simulation.fabric.connect

        def count(process: Process, address: tuple[str, int], tls: TlsClient | None = None) -> SimConnection:
            attempts[process.name, address[0]] += 1
            return connect(process, address, tls)

        simulation.fabric.connect = count  # type: ignore[method-assign]
        for power_cut in (False, True):
            standby.kill(power_cut=power_cut)
            await asyncio.sleep(AWAY_SECONDS)
            standby.begin()
            await started([standby])
            await asyncio.sleep(BACK_SECONDS)
            assert [hears(standby, broker_id) for broker_id in (FIRST, FIRST + 1)] == [True, True]
        made = attempts["broker-4", standby.machine.name]
        assert 2 < made < 2 * ATTEMPTS_MAX, attempts
        await brokers[0].stop()
        made = attempts["broker-4", standby.machine.name]
        await asyncio.sleep(AWAY_SECONDS)
        assert attempts["broker-4", standby.machine.name] == made
        assert not hears(standby, FIRST)

    simulation = Simulation(9)
    with structlog.testing.capture_logs():
        run(main())
