"""Bootstrap addresses that do not answer, or refuse: what a new client waits for, and which connections it leaves."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from ottla.client.cluster import Cluster
from ottla.client.connection import ClientConnection
from ottla.client.head_start import AT_ONCE_MAX, HEAD_START_MS, first_of
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run


def test_a_paused_first_address_costs_its_head_start() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        paused = SimBroker(simulation, name="paused")
        broker = SimBroker(simulation)
        await paused.start()
        await broker.start()
        simulation.fabric.darken("paused")
        world = simulation.machine("client").boot()
        cluster = Cluster(world, [paused.bootstrap, broker.bootstrap], client_id="c")
        before_ms = world.clock.monotonic_ms()
        await cluster.refresh()
        assert HEAD_START_MS <= world.clock.monotonic_ms() - before_ms < 2 * HEAD_START_MS
        assert [node.host for node in cluster.nodes.values()] == ["broker"]
        await cluster.close()

    run(main())


def test_attempts_are_bounded_and_the_others_end_when_one_has_failed_for_all() -> None:
    async def main() -> None:
        begun: list[int] = []
        ended: list[int] = []

        async def silent(number: int) -> ClientConnection:
            begun.append(number)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)
            raise AssertionError

        task = asyncio.ensure_future(first_of([partial(silent, number) for number in range(5)]))
        await asyncio.wait([task], timeout=10 * HEAD_START_MS / 1000)
        assert begun == [*range(AT_ONCE_MAX)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert ended == begun

    run(main())


def test_the_next_address_is_asked_at_once_when_one_refuses_and_the_last_error_is_raised() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()

        async def refuse(number: int) -> ClientConnection:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"address {number}")

        with pytest.raises(KafkaError, match="address 3"):
            await first_of([partial(refuse, number) for number in range(4)])
        assert loop.time() == before

    run(main())
