"""Sentinels: what they see of other brokers' processes, and what they may not conclude from it."""

from __future__ import annotations

import asyncio

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
