"""Thousands of markers that are due at once: carried out in slices, in their order, and no more when their shard is closed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from tests.broker.test_moving_coordinators import TickingClock

from ottla.broker.coordinators.marker_queues import LATER_MAX, MarkerQueues
from ottla.broker.coordinators.owed import LOOK_EVERY, OwedEffects
from ottla.broker.coordinators.shard import Shard
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.transactions.effects import WriteMarkers
from ottla.types import TopicPartition

COUNT = 50 * LOOK_EVERY
TURNS_MAX = 2 * COUNT
"""Of the loop: more than all of it takes."""


def test_many_are_carried_out_in_slices_and_in_order() -> None:
    broker = SimBroker(Simulation(1), {})

    async def main() -> None:
        await broker.start()
        assert broker.broker is not None
        done: list[int] = []

        def carry_out(effect: int) -> None:
            done.append(effect)
            if effect == 0:
                owed.add([COUNT])  # what follows from it comes after the others

        owed = OwedEffects(msgspec.structs.replace(broker.broker.world, clock=TickingClock(broker.broker.world.clock)), carry_out)
        owed.add([1, 2])
        assert done == [1, 2], "a few are carried out at once"
        done.clear()
        owed.add(range(COUNT))
        turns = 0
        for _ in range(TURNS_MAX):
            before = len(done)
            await asyncio.sleep(0)
            turns += len(done) > before
        assert done == [*range(COUNT + 1)]
        assert turns > 1
        done.clear()
        owed.add(range(1, COUNT))
        owed.close()
        owed.add([COUNT])
        left = len(done)
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
        assert left == len(done) < COUNT - 1
        await broker.stop()

    run(main())


def test_markers_that_are_tried_again_are_so_many_in_a_turn() -> None:
    broker = SimBroker(Simulation(1), {})

    async def main() -> None:
        await broker.start()
        assert broker.broker is not None
        queues = MarkerQueues(broker.broker.world, 1, cast(Any, None), cast(Any, None), cast(Any, None))
        sent: list[str] = []
        sizes: list[int] = []
        is_done = asyncio.Event()
        queues._send = lambda shard, wanted: sent.append(wanted.transactional_id)  # type: ignore[method-assign]
        on_timer = queues._on_timer

        def noted() -> None:
            before = len(sent)
            on_timer()
            sizes.append(len(sent) - before)
            if len(sent) == 3 * LATER_MAX:
                is_done.set()

        queues._on_timer = noted  # type: ignore[method-assign]
        shard = cast(Shard[Any], SimpleNamespace(is_closed=False))
        for number in range(3 * LATER_MAX):
            queues.send(shard, WriteMarkers(f"x-{number}", number, 1, True, 2, frozenset([TopicPartition("t", 0)]), delay_ms=100))
        async with asyncio.timeout(1):  # of simulated time
            await is_done.wait()
        assert sent == [f"x-{number}" for number in range(3 * LATER_MAX)]
        assert max(sizes) == LATER_MAX
        queues.close()
        await broker.stop()

    run(main())
