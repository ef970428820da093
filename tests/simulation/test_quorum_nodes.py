"""A cluster of shipped nodes in the simulated world: whatever happens to one node at a time, no acknowledged change is lost."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest
from tests.simulation.quorum_nodes import NODES, QuorumNode, explore_quorum

from ottla.sim.cluster import Simulation
from ottla.sim.loop import run

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))
BLOCKS = 3
SESSION_SECONDS = 9  # broker.session.timeout.ms by default


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_acknowledged_change_is_lost_and_all_nodes_agree_in_the_end(block: int) -> None:
    states: Counter[str] = Counter()
    acknowledged = 0
    for seed in range(block, SEEDS, BLOCKS):
        found = explore_quorum(seed)
        assert not found.findings, f"seed {seed}: {found.findings}"
        states.update(found.states)
        acknowledged += len(found.acknowledged)
    print(acknowledged, dict(states))
    assert acknowledged > 100
    assert states["controller_active"] > 1


def test_the_same_seed_gives_the_same_run() -> None:
    assert explore_quorum(7).digest == explore_quorum(7).digest


def test_nodes_that_stopped_in_order_are_taken_back_before_their_sessions_would_have_ended() -> None:
    """One alone, then all together: they leave first, and end when all have left."""

    async def main() -> None:
        nodes = [QuorumNode(simulation, node) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format()
            node.begin()
        await started(nodes)
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

    async def started(nodes: list[QuorumNode]) -> None:
        async with asyncio.timeout(60):
            for node in nodes:
                assert node.starting is not None
                await node.starting

    simulation = Simulation(3)
    run(main())
