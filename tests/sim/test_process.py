"""Processes of simulated machines: what a kill, a pause and a drifting clock do to code."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.simulation.quorum_nodes import NODES

from ottla.broker.node import Broker
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import SLICE_US, Slices, pause
from ottla.sim.clock import world_seconds
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run
from ottla.sim.process import PowerCut
from ottla.sim.world import Machine


def on_machine(body: Callable[[Machine], Awaitable[None]], seed: int = 1) -> None:
    """``body`` is outside of the process that runs on the machine."""

    async def main() -> None:
        machine = Simulation(seed).machine("host")
        machine.boot()
        await body(machine)

    run(main())


def begin(machine: Machine, *coroutines: object) -> list[asyncio.Task[None]]:
    assert machine.process is not None
    return [machine.process.begin(coroutine) for coroutine in coroutines]  # type: ignore[arg-type]


async def tick(noted: list[str], name: str = "tick") -> None:
    while True:
        await asyncio.sleep(0.1)
        noted.append(name)


def test_a_killed_process_runs_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    noted: list[str] = []
    future: asyncio.Future[None]

    async def hold(wait: Callable[[], Awaitable[object]]) -> None:
        try:
            await wait()
        except asyncio.CancelledError:
            noted.append("cancelled")
        finally:
            noted.append("finally")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(1)
            yield 2
        finally:
            noted.append("generator")

    async def read() -> None:
        async for _ in numbers():
            noted.append("number")

    async def set_up() -> None:
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: noted.append("callback"))
        loop.call_later(1, noted.append, "later")
        loop.call_soon(loop.call_soon, loop.call_soon, noted.append, "soon")
        eager.run(hold(lambda: asyncio.sleep(1)), lambda result, error: noted.append("eager"))

    async def body(machine: Machine) -> None:
        nonlocal future
        future = asyncio.get_running_loop().create_future()
        begin(machine, tick(noted), read(), hold(lambda: asyncio.sleep(1)), hold(lambda: asyncio.shield(future)), hold(pause), set_up())
        begin(machine, hold(asyncio.Event().wait))  # which nothing else refers to
        await asyncio.sleep(0)  # the last of them begins nothing
        machine.kill_process()
        noted.clear()
        gc.collect()
        await asyncio.sleep(5)
        future.set_result(None)
        await asyncio.sleep(5)
        gc.collect()
        assert noted == []

    gc.collect()  # what earlier tests left is not what this one is about
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG, "asyncio"):
        warnings.simplefilter("error")
        on_machine(body)
        gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_process_that_kills_itself_goes_no_further_than_its_next_operation() -> None:
    noted: list[str] = []

    async def work(machine: Machine) -> None:
        try:
            await machine.disk.make_dirs("/data")
            noted.append("made")
            await machine.disk.make_dirs("/data/more")
        finally:
            noted.append("finally")

    async def body(machine: Machine) -> None:
        machine.disk.crash_at, machine.disk.on_crash = 2, machine.kill_process
        with pytest.raises(PowerCut):
            await machine.run(work(machine))
        await asyncio.sleep(1)
        assert noted == ["made"]
        assert "/data/more" not in machine.disk.directories
        with pytest.raises(PowerCut):
            await machine.run(asyncio.sleep(0))

    on_machine(body)


def test_the_next_process_has_no_zombies_beside_it() -> None:
    async def body(machine: Machine) -> None:
        noted: list[str] = []
        begin(machine, tick(noted, "old"))
        await asyncio.sleep(0.25)
        machine.kill_process()
        machine.boot()
        begin(machine, tick(noted, "new"))
        await asyncio.sleep(0.25)
        assert noted == ["old", "old", "new", "new"]

    on_machine(body)


def test_a_paused_process_does_later_all_that_came_due_and_in_order() -> None:
    async def body(machine: Machine) -> None:
        noted: list[object] = []
        world = machine.boot()

        async def wait(seconds: float) -> None:
            await asyncio.sleep(seconds)
            noted.append((seconds, asyncio.get_running_loop().time()))

        begin(machine, *(wait(seconds) for seconds in (3, 1, 2, 7)))
        world.timers.call_later_ms(1500, lambda: noted.append("timer"))
        await asyncio.sleep(0.5)
        machine.pause_process()
        await asyncio.sleep(4.5)
        assert noted == []
        machine.resume_process()
        await asyncio.sleep(5)
        assert noted == ["timer", (1, 5.0), (2, 5.0), (3, 5.0), (7, 7.0)], "a task that has slept goes on a turn after its timer"

    on_machine(body)


def test_a_paused_process_that_is_killed_is_dead() -> None:
    async def body(machine: Machine) -> None:
        noted: list[str] = []
        begin(machine, tick(noted))
        await asyncio.sleep(0.15)
        machine.pause_process()
        await asyncio.sleep(1)
        machine.kill_process()
        machine.resume_process()
        await asyncio.sleep(1)
        assert noted == ["tick"]

    on_machine(body)


def test_work_in_slices_of_one_process_does_not_wait_for_that_of_a_dead_one() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        first, second = simulation.machine("first"), simulation.machine("second")
        first.boot()
        second.boot()
        begin(first, pause())
        await asyncio.sleep(0)
        first.pause_process()
        await second.run(pause())

    run(main())


@pytest.mark.parametrize(("worked_us", "looks", "is_long"), [(0, 11, False), (200, 11, False), (2 * SLICE_US, 21, True)])
def test_work_takes_time_where_a_machine_says_so_and_pauses_in_its_slices(worked_us: int, looks: int, is_long: bool) -> None:
    async def body(machine: Machine) -> None:
        machine.clock.worked_us = lambda: worked_us
        assert machine.process is not None
        beside: list[int] = []
        machine.process.call(asyncio.get_running_loop().call_soon, beside.append, 1)
        async for _ in Slices(machine.clock).over(range(10)):
            pass
        assert bool(beside) is is_long
        assert world_seconds() * 1_000_000 == pytest.approx(looks * worked_us)

    on_machine(body)


def test_a_drifting_clock_counts_and_waits_at_its_own_rate() -> None:
    async def body(machine: Machine) -> None:
        world, loop = machine.boot(), asyncio.get_running_loop()
        fired: list[str] = []
        await asyncio.sleep(10)
        machine.clock.drift(2.0)
        assert world.clock.monotonic_ms() == 10_000, "a clock does not jump when its rate changes"
        world.timers.call_later_ms(1000, lambda: fired.append("timer"))
        begin(machine, tick(fired))
        await asyncio.sleep(0.06)
        assert fired == ["tick"], "a tenth of a second of its clock"
        await machine.run(asyncio.sleep(3.88))
        assert loop.time() == pytest.approx(12), "its four seconds are two of the world"
        assert world.clock.monotonic_ms() == 14_000
        assert "timer" in fired
        machine.clock.step_ms = -3_600_000
        assert world.clock.now_ms() - world.clock.monotonic_ms() == 1_700_000_000_000 - 3_600_000

    on_machine(body)


def test_an_operation_in_flight_at_the_kill_has_reached_the_disk_or_not() -> None:
    found = set()
    for seed in range(200):

        async def body(machine: Machine) -> None:
            machine.disk.directories["/data"] = None
            file = await machine.disk.open("/data/log", create=True)
            [task] = begin(machine, file.append([b"x"]))
            await asyncio.sleep(0.0005)
            machine.kill_process()
            await asyncio.sleep(1)
            found.add((task.done(), bytes(machine.disk.files["/data/log"].written)))

        on_machine(body, seed)
    assert found == {(True, b"x"), (False, b"x"), (False, b"")}


def test_nodes_are_freed_when_their_world_has_ended() -> None:
    """They are killed with it, the leader while the fetches of others wait there: what it keeps of those leads back to it."""
    nodes: list[weakref.ref[Broker]] = []

    async def body(running: SimNodes) -> None:
        brokers = [node.broker for node in running.nodes.values() if node.broker is not None]
        await running.until(lambda: any(broker.controller.is_active for broker in brokers))
        await asyncio.sleep(1)
        nodes.extend(map(weakref.ref, brokers))

    play(body)
    gc.collect()
    assert len(nodes) == NODES
    assert [node() for node in nodes] == [None] * NODES
