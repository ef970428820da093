"""A broker that leads leaves its cluster: it ends soon, and others lead."""

from __future__ import annotations

import asyncio

from tests.cluster.in_simulation import SimNodes, play


def test_a_broker_that_leads_does_not_wait_for_the_others_heartbeats() -> None:
    """It waited for those of the others, which come every 2 s: a rolling restart of three nodes took 6 s more."""

    async def body(nodes: SimNodes) -> None:
        loop = asyncio.get_running_loop()
        await nodes.create("t", [1, 2], [1, 3])
        assert nodes.partition(1, "t").leading is not None
        broker = nodes.broker(1)
        assert broker is not None
        began = loop.time()
        await nodes.nodes[1].machine.run(broker.leave())
        assert loop.time() - began < 0.5, "of simulated time"
        assert nodes.partition(2, "t").leading is not None
        assert nodes.partition(3, "t", 1).leading is not None

    play(body)
