"""Coroutines that wait for an event, or for an offset."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.tasks.waiters import OffsetWaiters, Waiters
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run


def test_a_wake_reaches_all_that_wait_and_none_that_come_later() -> None:
    async def scenario() -> None:
        waiters, woken = Waiters(), list[str]()

        async def wait(name: str) -> None:
            await waiters.wait()
            woken.append(name)

        early = [asyncio.ensure_future(wait(name)) for name in ("a", "b")]
        await asyncio.sleep(1)
        waiters.wake()
        late = asyncio.ensure_future(wait("c"))
        await asyncio.wait(early)
        await asyncio.sleep(1)
        assert woken == ["a", "b"]
        waiters.wake()
        await late

    run(scenario())


def test_a_waiter_that_gave_up_is_forgotten_and_hinders_no_other() -> None:
    async def scenario() -> None:
        waiters = Waiters()
        timers = Simulation(1).machine("m").boot().timers
        cancelled, other = (asyncio.ensure_future(waiters.wait()) for _ in range(2))
        late = asyncio.ensure_future(waiters.wait_at_most(timers, 500))
        await asyncio.sleep(1)
        cancelled.cancel()
        await asyncio.wait([cancelled, late])
        assert len(waiters._futures) == 1, "without a wake for hours, waiters that gave up would fill the memory"
        waiters.wake()
        await other

    run(scenario())


def test_an_advance_wakes_exactly_the_waiters_for_that_offset_or_less() -> None:
    async def scenario() -> None:
        waiters = OffsetWaiters()
        waits = {offset: asyncio.ensure_future(waiters.wait(offset)) for offset in (7, 3, 5, 4)}
        again = asyncio.ensure_future(waiters.wait(5))
        await asyncio.sleep(1)
        waits[4].cancel()
        waiters.advance(5)
        await asyncio.wait([waits[3], waits[5], again])
        await asyncio.sleep(1)
        assert not waits[7].done()
        waiters.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "it leads no longer"))
        with pytest.raises(KafkaError):
            await waits[7]

    run(scenario())
