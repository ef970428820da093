"""Schedules of faults: their text, where they come from, what they do, and how they shrink."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import cast

import pytest

from ottla.sim.cluster import Simulation
from ottla.sim.loop import SimLoop, run
from ottla.sim.process import PowerCut
from ottla.sim.schedule.drawing import SWARM, draw_schedule
from ottla.sim.schedule.fault import LINK_KINDS, NODE_KINDS, Kind, ScheduledFault, from_text, parse_fault, to_text
from ottla.sim.schedule.injector import Injector
from ottla.sim.schedule.shrinking import shrink

NODES = ["one", "two", "three"]
LINKS = [(source, target) for source in NODES for target in NODES if source != target]


def drawn(seed: int) -> list[ScheduledFault]:
    return draw_schedule(random.Random(seed), nodes=NODES, others=["client"], links=[*LINKS, ("client", "one")], ms=5000)


class Ticker:
    """A node: its process notes what the time is, every 10 ms."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.machine = simulation.machine(name)
        self.is_up = False
        self.ticks: list[float] = []
        self.boots = 0

    async def start(self) -> None:
        self.machine.boot()
        assert self.machine.process is not None
        self.machine.process.begin(self._tick())
        self.boots += 1
        self.is_up = True

    async def stop(self) -> None:
        self.is_up = False
        self.machine.end_process()

    def kill(self, *, power_cut: bool) -> None:
        self.is_up = False
        if power_cut:
            self.machine.cut_power()
        else:
            self.machine.kill_process()

    async def _tick(self) -> None:
        while True:
            self.ticks.append(cast(SimLoop, asyncio.get_running_loop()).now)
            await asyncio.sleep(0.01)

    def silences(self) -> list[tuple[int, int]]:
        """From and to which millisecond it did nothing for longer than 50 ms."""
        return [(round(a * 1000), round(b * 1000)) for a, b in zip(self.ticks, self.ticks[1:]) if b - a > 0.05]


def carry_out(text: str, seconds: float = 3) -> tuple[dict[str, Ticker], Injector, Simulation]:
    simulation = Simulation(1)
    nodes = {name: Ticker(simulation, name) for name in NODES}

    async def main() -> Injector:
        injector = Injector(simulation.fabric, from_text(text))
        for node in nodes.values():
            await node.start()
        await asyncio.gather(injector.run(nodes), asyncio.sleep(seconds))
        return injector

    return nodes, run(main()), simulation


def test_a_schedule_is_a_text_to_be_read_and_written() -> None:
    faults = [fault for seed in range(50) for fault in drawn(seed)]
    assert {fault.kind for fault in faults} == set(SWARM)
    assert from_text(to_text(faults, "seed 17", "of fifty")) == faults
    text = (
        "1200 kill two for 500\n1500 cut one -> two for 800\n1800 slow one -> two for 1000 by 40\n"
        "2100 drift two for 9 by 1.05\n3000 break one\n"
    )
    assert to_text(from_text(text)) == text
    triggered = (
        "4000 when 3 END_TXN received: kill coordinator for 2000\n4000 when 2 FETCH answered node-2 -> node-1: power node-1 for 100\n"
        "4000 when 4 append:.log node-1: kill node-1 for 300\n4000 when 3 step:after=install node-1: kill node-1 for 300\n"
        "5000 disk-fails node-2 in /more of read_file:-checkpoint for 1500 with killed,replaced\n5000 disk-slow one of 15% for 9 by 30\n"
    )
    assert to_text(from_text(triggered)) == triggered
    assert from_text("# a comment\n\n  10 pause one for 5  # why\n") == [ScheduledFault(10, Kind.PAUSE, "one", for_ms=5)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("kill one", "is not of the form"),
        ("10 melt one", "there is no fault 'melt', but kill, "),
        ("10 cut one", "cut is from one host -> to another"),
        ("10 kill one -> two", "kill is of one host"),
        ("10 when 3 MELT sent: kill one", "there is no API 'MELT', but PRODUCE, "),
        ("10 when PRODUCE sent: kill one", "is neither of the form"),
    ],
)
def test_a_line_that_is_wrong_says_how(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_fault(line)


def test_each_seed_draws_which_kinds_there_are() -> None:
    kinds = [frozenset(fault.kind for fault in drawn(seed)) for seed in range(200)]
    assert len(set(kinds)) > 150
    assert max(map(len, kinds)) < len(SWARM)
    present = Counter(kind for found in kinds for kind in found)
    assert all(20 < present[kind] < 120 for kind in SWARM), "each is there in some runs, and not in most"
    assert drawn(3) == drawn(3)


def test_what_is_drawn_can_be_carried_out() -> None:
    for fault in (fault for seed in range(100) for fault in drawn(seed)):
        assert (fault.kind in LINK_KINDS) == bool(fault.peer)
        assert fault.host in (NODES if fault.kind in NODE_KINDS else [*NODES, "client"])
        assert 0 <= fault.at_ms < 5000


def test_faults_begin_and_end_when_the_schedule_says() -> None:
    nodes, injector, _ = carry_out(
        """
        500 kill one for 300
        600 pause two for 500
        700 restart three for 200
        1500 power one for 100
        2000 drift three for 500 by 0.1
        """
    )
    assert nodes["one"].silences() == [(490, 800), (1490, 1600)]
    assert nodes["two"].silences() == [(590, 1100)]
    [restart, *slow] = nodes["three"].silences()
    assert restart == (690, 900)
    assert all(to - since == 100 for since, to in slow)
    assert 5 <= len(slow) <= 6
    assert [node.boots for node in nodes.values()] == [3, 1, 2]
    assert injector.counts == {"kill": 1, "pause": 1, "restart": 1, "power": 1, "drift": 1, "troubles": 3}


def test_power_that_is_lost_while_another_host_is_dead_is_counted() -> None:
    _, injector, _ = carry_out(
        """
        500 kill one for 300
        600 power two for 100
        2000 power two for 100
        """
    )
    assert injector.counts["power lost while others are dead"] == 1


def test_faults_of_one_kind_that_overlap_end_with_the_last() -> None:
    nodes, injector, simulation = carry_out(
        """
        500 pause one for 500
        700 pause one for 600
        500 kill two for 1000
        900 power two for 100
        100 clock three for 500 by -70
        200 clock three for 5000 by 30
        200 cut one -> two for 9000
        300 dark two for 9000
        400 slow two -> one for 9000 by 10
        600 disk-full three for 100
        600 disk-full three for 9000
        """
    )
    assert nodes["one"].silences() == [(490, 1300)]
    assert nodes["two"].silences() == [(490, 1000)], "it is started when the first of its deaths is over"
    assert nodes["three"].machine.clock.step_ms == 0
    assert nodes["three"].machine.disk.faults == []
    assert not simulation.fabric.link("one", "two").is_blocked
    assert injector.counts["power during kill"] == 1
    assert injector.counts["pause during cut"] == 2


def test_a_death_during_the_start_is_no_end() -> None:
    class Slow(Ticker):
        async def start(self) -> None:
            self.machine.boot()
            await self.machine.run(asyncio.sleep(0.3))
            await super().start()

    async def main() -> None:
        simulation = Simulation(1)
        node = Slow(simulation, "one")
        await node.start()
        injector = Injector(simulation.fabric, from_text("100 kill one for 100\n300 kill one for 100\n350 restart one for 10"))
        await injector.run({"one": node})
        assert injector.counts["death during start"] == 1
        assert node.is_up

    run(main())


@pytest.mark.parametrize("wanted", [[], [7], [2, 13], [0, 19], [4, 5, 6, 18], list(range(20))], ids=str)
def test_shrinking_finds_the_faults_that_it_takes(wanted: list[int]) -> None:
    runs = 0

    def fails(items: Sequence[int]) -> bool:
        nonlocal runs
        runs += 1
        return set(wanted) <= set(items)

    assert shrink(range(20), fails) == wanted
    assert runs <= 20 * 20


def test_shrinking_finds_the_two_faults_of_twenty_that_break_a_world() -> None:
    """The planted failure: ``one`` dies while ``two`` stands still."""
    faults = [ScheduledFault(100 * at, kind, "three", for_ms=30) for at, kind in enumerate([Kind.KILL, Kind.PAUSE, Kind.DARK] * 6)]
    planted = from_text("777 pause two for 200\n800 kill one for 10")

    def fails(schedule: Sequence[ScheduledFault]) -> bool:
        simulation = Simulation(1)
        nodes = {name: Ticker(simulation, name) for name in NODES}
        is_broken = False

        async def watch() -> None:
            nonlocal is_broken
            for node in nodes.values():
                await node.start()
            begun = asyncio.create_task(Injector(simulation.fabric, schedule).run(nodes))
            while not begun.done():
                await asyncio.sleep(0.001)
                process = nodes["two"].machine.process
                is_broken = is_broken or (process is not None and not process.is_running and nodes["one"].machine.process is None)

        run(watch())
        return is_broken

    assert shrink(sorted([*faults, *planted], key=lambda fault: fault.at_ms), fails) == planted


def test_code_outside_waits_for_a_process_no_longer_than_it_lives() -> None:
    async def main() -> None:
        machine = Simulation(1).machine("one")
        machine.boot()
        waits = asyncio.create_task(machine.run(asyncio.sleep(10)))
        await asyncio.sleep(1)
        machine.kill_process()
        with pytest.raises(PowerCut):
            await waits

    run(main())
