"""What a node waits for is in its log: after two seconds, every ten, and once more when it waits no longer."""

from __future__ import annotations

import asyncio

import structlog

from ottla.broker.tasks.waits import Waits
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run


def test_a_wait_is_logged_after_two_seconds_and_every_ten() -> None:
    async def body() -> None:
        world = Simulation(1).machine("node").boot()
        waits = Waits(world, lambda: "a majority")
        await asyncio.sleep(1.9)
        assert not said
        await asyncio.sleep(24)
        waits.turn_to(lambda: None)
        await asyncio.sleep(60)
        waits.turn_to(lambda: "ZooKeeper")
        await asyncio.sleep(2)
        assert len(said) == 4, "a moment is not worth a line"
        await asyncio.sleep(2)
        await waits.stop()
        await asyncio.sleep(60)
        assert len(said) == 5

    with structlog.testing.capture_logs() as said:
        run(body())
    lines = [(line["event"], line.get("waits_for"), line["seconds"]) for line in said]
    assert lines == [
        ("node_waits", "a majority", 2),
        ("node_waits", "a majority", 12),
        ("node_waits", "a majority", 22),
        ("node_waits_no_longer", None, 26),
        ("node_waits", "ZooKeeper", 2),
    ]
