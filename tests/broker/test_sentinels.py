"""Sentinels: what they see of other brokers' processes, and what they may not conclude from it."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.liveness.callers import Callers
from ottla.broker.liveness.failing_brokers import FailingBrokers
from ottla.broker.liveness.probe import Probe, Proof
from ottla.broker.liveness.sentinels import Sentinels
from ottla.broker.peers.caller_name import CallerName
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, ClusterImage, EndpointImage
from ottla.ports import Connection, ConnectionHandler, World
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run


class Noted:
    """A judge who notes the dead."""

    def __init__(self, dead: list[tuple[int, int]]) -> None:
        self._dead = dead

    def is_heard(self, broker_id: int, epoch: int) -> bool:
        return False

    def on_dead(self, broker_id: int, epoch: int) -> None:
        self._dead.append((broker_id, epoch))


def test_a_broker_that_never_answered_at_its_address_is_not_dead_because_that_refuses() -> None:
    """Its listener may be elsewhere: behind a proxy that is down, or at an address that it has got wrong."""
    simulation = Simulation(0)
    dead: list[tuple[int, int]] = []

    async def watch(world: World) -> None:
        broker = BrokerImage(4, 7, {"PLAINTEXT": EndpointImage("PLAINTEXT", "elsewhere", 9092)}, None, is_fenced=False)
        sentinels = Sentinels(world, 1, None, Callers(), FailingBrokers(world))
        sentinels.report_to(Noted(dead))
        await sentinels.on_image(ImageDelta(EMPTY_IMAGE, ClusterImage(brokers={4: broker})))
        await asyncio.sleep(60)
        assert sentinels.is_broken(4, 7) is None
        assert sentinels.suspected == frozenset()
        await sentinels.stop()

    async def main() -> None:
        simulation.machine("elsewhere").boot()  # it is up, and nothing listens there: connections are refused
        watcher = simulation.machine("watcher")
        await watcher.run(watch(watcher.boot()))

    run(main())
    assert dead == []


def test_a_process_that_takes_connections_and_answers_nothing_is_not_taken_for_one_that_lives() -> None:
    """The system accepts for a process that stands still, and for some milliseconds for one that has ended."""
    simulation = Simulation(0)
    dead: list[tuple[int, int]] = []
    accepted: list[Connection] = []

    def accept(connection: Connection) -> ConnectionHandler:
        accepted.append(connection)
        handler: Any = SimpleNamespace(on_data=lambda data: False, room=lambda: None, on_drain=lambda: None, on_close=lambda error: None)
        return cast("ConnectionHandler", handler)

    async def watch(world: World) -> None:
        assert await Probe(world, ("mute", 9092), CallerName.of_node(1, "sentinel")).run() is Proof.NONE
        broker = BrokerImage(4, 7, {"PLAINTEXT": EndpointImage("PLAINTEXT", "mute", 9092)}, None, is_fenced=False)
        sentinels = Sentinels(world, 1, None, Callers(), FailingBrokers(world))
        sentinels.report_to(Noted(dead))
        await sentinels.on_image(ImageDelta(EMPTY_IMAGE, ClusterImage(brokers={4: broker})))
        await asyncio.sleep(10)
        assert len(accepted) > 1
        assert sentinels.is_broken(4, 7) is None, "there never was a connection that says something"
        mute.kill_process()
        await asyncio.sleep(10)
        assert sentinels.is_broken(4, 7) is None
        await sentinels.stop()

    async def main() -> None:
        await mute.run(mute.boot().network.listen("mute", 9092, accept))
        watcher = simulation.machine("watcher")
        await watcher.run(watch(watcher.boot()))

    mute = simulation.machine("mute")
    run(main())
    assert dead == [], "it may have been another one that listened there"


def test_a_sentinel_also_probes_the_connections_that_the_node_has_made() -> None:
    """Of a machine that has lost power since these would be open for ever, and a sign of life of its next process."""
    asked: list[int] = []

    async def look(world: World) -> None:
        callers = Callers()
        for node_id in (4, 5):
            call: Any = SimpleNamespace(is_closed=False, probe=partial(asked.append, node_id))
            callers.note(node_id, call)
        sentinels = Sentinels(world, 1, None, callers, FailingBrokers(world))
        sentinels.check([4])
        await sentinels.stop()

    async def main() -> None:
        watcher = Simulation(0).machine("watcher")
        await watcher.run(look(watcher.boot()))

    run(main())
    assert asked == [4]
