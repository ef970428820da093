"""Sentinels: what they see of other brokers' processes, and what they may not conclude from it."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

from ottla.broker.peers.callers import Callers
from ottla.broker.peers.sentinels import Sentinels
from ottla.metadata.image import BrokerImage, ClusterImage, EndpointImage
from ottla.ports import World
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run


def test_a_broker_that_never_answered_at_its_address_is_not_dead_because_that_refuses() -> None:
    """Its listener may be elsewhere: behind a proxy that is down, or at an address that it has got wrong."""
    simulation = Simulation(0)
    dead: list[tuple[int, int]] = []

    async def watch(world: World) -> None:
        broker = BrokerImage(4, 7, {"PLAINTEXT": EndpointImage("PLAINTEXT", "elsewhere", 9092)}, None, is_fenced=False)
        sentinels = Sentinels(world, 1, None, Callers())
        sentinels.on_dead = lambda broker_id, epoch: dead.append((broker_id, epoch))
        sentinels.follow(ClusterImage(brokers={4: broker}))
        await asyncio.sleep(60)
        assert sentinels.is_broken(4, 7) is None
        assert sentinels.suspected == frozenset()
        sentinels.close()

    async def main() -> None:
        simulation.machine("elsewhere").boot()  # it is up, and nothing listens there: connections are refused
        watcher = simulation.machine("watcher")
        await watcher.run(watch(watcher.boot()))

    run(main())
    assert dead == []


def test_who_is_looked_at_is_asked_on_the_connections_that_it_has_made_too() -> None:
    """Of a machine that has lost power since these would be open for ever, and a sign of life of its next process."""
    asked: list[int] = []

    async def look(world: World) -> None:
        callers = Callers()
        for node_id in (4, 5):
            call: Any = SimpleNamespace(is_closed=False, probe=partial(asked.append, node_id))
            callers.note(f"node-{node_id}-sentinel", call)
        sentinels = Sentinels(world, 1, None, callers)
        sentinels.check([4])
        sentinels.close()

    async def main() -> None:
        watcher = Simulation(0).machine("watcher")
        await watcher.run(look(watcher.boot()))

    run(main())
    assert asked == [4]
