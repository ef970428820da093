"""Shipped nodes in ZooKeeper mode, in the simulated world: a machine that lost power returns before its session ends."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from tests.simulation.quorum_nodes import started
from tests.simulation.zookeeper_nodes import SESSION_MS, nodes_in_zookeeper

from ottla.sim.cluster import Simulation
from ottla.sim.loop import run


@pytest.mark.parametrize("is_active", [False, True])
def test_a_machine_that_lost_power_does_not_wait_for_the_end_of_its_earlier_session(is_active: bool) -> None:
    """The znode that is there names its own address: it deletes it."""

    async def main() -> None:
        nodes = nodes_in_zookeeper(simulation)
        for node in nodes:
            node.begin()
        await started(nodes)
        [victim, *_] = [node for node in nodes if node.broker is not None and node.broker.controller.is_active == is_active]
        victim.kill(power_cut=True)
        await asyncio.sleep(0.1)
        begin = asyncio.get_running_loop().time()
        victim.begin()
        await started([victim])
        assert asyncio.get_running_loop().time() - begin < SESSION_MS / 1000 / 2

    simulation = Simulation(5)
    with structlog.testing.capture_logs():
        run(main())
