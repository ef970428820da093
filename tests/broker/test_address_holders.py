"""Who listens at an address: what a process that waits for its registration answers there, and what follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Any

import pytest

from ottla.broker.liveness.address_holders import ASKED_COUNT, AddressHolders
from ottla.broker.node import Broker
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.listeners import ListenerAddress
from ottla.client.admin import Admin
from ottla.config import BrokerConfig
from ottla.ports import Connection, World
from ottla.sim.cluster import DATA_DIRECTORY, PORT, SimClient, Simulation
from ottla.sim.loop import run

FIRST, SECOND = b"1" * 16, b"2" * 16
EPOCH = 7


class Waiting(Broker):
    """A lone broker that has bound its ports, and begins to serve when ``may_start`` is set."""

    def __init__(self, world: World, config: BrokerConfig, incarnation_id: bytes) -> None:
        super().__init__(world, config)
        self._incarnation_id = incarnation_id
        self.is_bound, self.may_start = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        bind = Gatekeeper.bind

        async def and_wait(gate: Gatekeeper, addresses: Iterable[ListenerAddress]) -> None:
            await bind(gate, addresses)
            gate.say_who(self._incarnation_id)
            self.is_bound.set()
            await self.may_start.wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Gatekeeper, "bind", and_wait)
            starting = asyncio.ensure_future(super().start())
            await self.is_bound.wait()
        await starting


async def begin(simulation: Simulation, incarnation_id: bytes, host: str = "broker") -> tuple[Waiting, asyncio.Task[None]]:
    machine = simulation.machine(host)
    broker = Waiting(machine.boot(), BrokerConfig({"listeners": f"PLAINTEXT://{host}:{PORT}", "log.dirs": DATA_DIRECTORY}), incarnation_id)
    starting = asyncio.get_running_loop().create_task(machine.run(broker.start()))
    await broker.is_bound.wait()
    return broker, starting


async def found(simulation: Simulation, host: str = "broker") -> bytes | None:
    """What a controller finds at the address."""
    controller = simulation.machine("controller")
    holders = AddressHolders(controller.boot(), CallerName.of_node(1, "sentinel"))

    async def ask() -> None:
        holders.ask(4, EPOCH, (host, PORT))
        await asyncio.sleep(5)

    await controller.run(ask())
    assert holders.found(4, EPOCH + 1) is None, "what is found belongs to one epoch"
    holders.close()
    return holders.found(4, EPOCH)


def test_a_broker_that_waits_says_who_it_is_and_serves_clients_that_came_before_it_was_let_in() -> None:
    async def main() -> None:
        simulation = Simulation(4)
        broker, starting = await begin(simulation, FIRST)
        client = SimClient(simulation, "early", f"broker:{PORT}", request_timeout_ms=60_000)
        listing = asyncio.get_running_loop().create_task(client.machine.run(Admin(client.cluster()).list_topics()))
        await asyncio.sleep(1)
        assert await found(simulation) == FIRST
        assert not listing.done()
        broker.may_start.set()
        await starting
        assert list(await listing) == []
        assert await found(simulation) is None, "a broker that serves does not say"

    run(main())


def test_nothing_is_found_where_nobody_listens_or_says_anything() -> None:
    async def main() -> None:
        simulation = Simulation(4)
        machine = simulation.machine("silent")
        world = machine.boot()
        assert await found(simulation, "silent") is None  # refused

        async def listen() -> None:
            listener = await world.network.listen("silent", PORT, lambda connection: pytest.fail("no connection is accepted"))
            listener.pause()

        await machine.run(listen())
        assert await found(simulation, "silent") is None

    run(main())


class Balancer:
    """Passes each connection on to the next of several hosts."""

    def __init__(self, world: World, hosts: Iterator[str]) -> None:
        self._world = world
        self._hosts = hosts
        self.count = 0

    def accept(self, client: Connection) -> Any:
        self.count += 1
        return _Side(self._world, client, next(self._hosts))


class _Side:
    def __init__(self, world: World, client: Connection, host: str) -> None:
        self._client = client
        self._server: Connection | None = None
        self._early: list[bytes] = []
        self._task = asyncio.get_running_loop().create_task(self._connect(world, host))

    async def _connect(self, world: World, host: str) -> None:
        def back(server: Connection) -> Any:
            self._server = server
            server.send(self._early)
            return _Back(self._client)

        await world.network.connect(host, PORT, back)

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        if self._server is None:
            self._early.append(bytes(data))
        else:
            self._server.send([bytes(data)])
        return False

    def on_drain(self) -> None:
        pass

    def on_close(self, error: Exception | None) -> None:
        if self._server is not None:
            self._server.abort()


class _Back:
    def __init__(self, client: Connection) -> None:
        self._client = client

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        self._client.send([bytes(data)])
        return False

    def on_drain(self) -> None:
        pass

    def on_close(self, error: Exception | None) -> None:
        self._client.close()


@pytest.mark.parametrize(("hosts", "expected"), [(["first"], FIRST), (["first", "second"], None), (["first", "first", "second"], None)])
def test_an_address_that_leads_to_several_processes_proves_nothing(hosts: list[str], expected: bytes | None) -> None:
    async def main() -> None:
        simulation = Simulation(4)
        starting = [(await begin(simulation, incarnation, host))[1] for host, incarnation in (("first", FIRST), ("second", SECOND))]
        machine = simulation.machine("balancer")
        world = machine.boot()
        balancer = Balancer(world, cycle(hosts))
        await machine.run(world.network.listen("balancer", PORT, balancer.accept))
        assert await found(simulation, "balancer") == expected
        assert balancer.count == ASKED_COUNT
        for task in starting:
            task.cancel()

    run(main())
