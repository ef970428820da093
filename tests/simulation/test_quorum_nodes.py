"""A cluster of shipped nodes in the simulated world: nodes that stop, lose power or die together return before their sessions end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
import structlog
from tests.simulation.brokers_apart import broker
from tests.simulation.quorum_nodes import NODES, QuorumNode, format_broker, started

from ottla.sim.cluster import Simulation
from ottla.sim.loop import run

SESSION_SECONDS = 9  # broker.session.timeout.ms by default
HEARTBEAT_SECONDS = 2
RETURN_SECONDS_MAX = 3
"""A third of a session: to start, to be refused, to ask again."""


async def serving(simulation: Simulation, properties: Mapping[str, str] = {}) -> list[QuorumNode]:
    """Three nodes that have started."""
    nodes = [QuorumNode(simulation, node, properties) for node in range(1, NODES + 1)]
    for node in nodes:
        await node.format()
        node.begin()
    await started(nodes)
    return nodes


def test_nodes_that_stopped_in_order_are_taken_back_before_their_sessions_would_have_ended() -> None:
    """One alone, then all together: they leave first, and end when all have left."""

    async def main() -> None:
        nodes = await serving(simulation)
        now = asyncio.get_running_loop().time
        begin = now()
        await nodes[1].stop()
        nodes[1].begin()
        await started(nodes)
        assert now() - begin < SESSION_SECONDS
        begin = now()
        brokers = [node.broker for node in nodes if node.broker is not None]
        await asyncio.gather(*(node.machine.run(broker.leave()) for node, broker in zip(nodes, brokers, strict=True)))
        await asyncio.gather(*(node.stop() for node in nodes))
        for node in nodes:
            node.begin()
        await started(nodes)
        assert now() - begin < SESSION_SECONDS

    simulation = Simulation(3)
    run(main())


@pytest.mark.parametrize("is_active", [False, True])
@pytest.mark.parametrize("off_seconds", [0.1, 1, 4])
def test_a_machine_that_lost_power_is_taken_back_before_its_session_would_have_ended(is_active: bool, off_seconds: float) -> None:
    """Its connections never ended at the other side: those that it had to the controller are asked when its next process knocks."""

    async def main() -> None:
        nodes = await serving(simulation)
        [victim, *_] = [node for node in nodes if node.broker is not None and node.broker.controller.is_active == is_active]
        await asyncio.sleep(HEARTBEAT_SECONDS)
        victim.kill(power_cut=True)
        await asyncio.sleep(off_seconds)
        begin = asyncio.get_running_loop().time()
        victim.begin()
        await started([victim])
        assert asyncio.get_running_loop().time() - begin < RETURN_SECONDS_MAX

    simulation = Simulation(5)
    with structlog.testing.capture_logs() as events:
        run(main())
    assert not [event for event in events if event["event"] == "broker_fenced" and event.get("reason") == "its session has ended"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("power_cut", [False, True])
def test_nodes_that_died_together_are_taken_back_before_their_sessions_would_have_ended(power_cut: bool, seed: int) -> None:
    """No controller has seen their earlier processes: it finds the next ones at their addresses. The session lasts for ten minutes."""

    async def main() -> None:
        nodes = await serving(simulation, {"broker.session.timeout.ms": "600000"})
        fourth = broker(simulation, "fourth")
        await format_broker(fourth)
        await fourth.start()
        for off_seconds in (0.05, 3):
            for node in (*nodes, fourth):
                node.kill(power_cut=power_cut)
            await asyncio.sleep(off_seconds)
            for node in nodes:
                node.begin()
            await fourth.start()
            await started(nodes)

    simulation = Simulation(seed)
    with structlog.testing.capture_logs() as events:
        run(main())
    assert sum(event["event"] == "broker_registered" for event in events) == 3 * 4
    assert not [event for event in events if event["event"] == "broker_fenced" and event.get("reason") == "its session has ended"]
