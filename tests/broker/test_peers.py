"""Connections to other nodes: how long one may take to be made."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.peers.peers import Peers, SetUp
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.ports import Connection
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run

PORT = 9092


class Silent:
    """Takes what comes, and says nothing."""

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        return False

    def on_drain(self) -> None:
        pass

    def on_close(self, error: Exception | None) -> None:
        pass


def test_each_connection_that_cannot_be_made_is_waited_for_twice_as_long_up_to_a_limit() -> None:
    """As ``socket.connection.setup.timeout.ms`` and its ``max`` of Kafka's (KIP-601)."""

    async def body() -> None:
        simulation = Simulation(1)
        here, there = simulation.machine("here"), simulation.machine("there")
        world, other = here.boot(), there.boot()
        peers = Peers(world, "peer", silence_ms_max=60_000, set_up=SetUp(1000, 3000))
        loop = asyncio.get_running_loop()

        async def attempt() -> float:
            began, ended = loop.time(), loop.create_future()
            peers.send(("there", PORT), ApiVersionsRequest(), ended.set_result)
            assert await ended is None
            return loop.time() - began

        simulation.fabric.darken("there")
        found = [await here.run(attempt()) for _ in range(4)]
        assert found == pytest.approx([1, 2, 3, 3], abs=0.01)
        simulation.fabric.heal()
        made: list[Connection] = []

        def accept(connection: Connection) -> Silent:
            made.append(connection)
            return Silent()

        async def connect_and_lose() -> None:
            peers.send(("there", PORT), ApiVersionsRequest(), lambda answer: None)
            while not made:
                await asyncio.sleep(0.01)
            made[0].abort()
            while peers.is_connected(("there", PORT)):
                await asyncio.sleep(0.01)

        await there.run(other.network.listen("there", PORT, accept))
        await here.run(connect_and_lose())
        simulation.fabric.darken("there")
        assert await here.run(attempt()) == pytest.approx(1, abs=0.01), "one was made meanwhile"
        peers.close()

    run(body())
