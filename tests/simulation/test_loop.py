"""The virtual loop."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import cast

import pytest

from ottla.sim.loop import CANCELLED_MAX, Deadlock, SimLoop, run


def test_timers_run_in_the_order_of_their_moments_and_those_of_one_moment_in_that_of_their_making() -> None:
    fired: list[tuple[float, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_at(float(number * 7 % 5), lambda number=number: fired.append((loop.time(), number)))  # type: ignore[misc]
        await asyncio.sleep(10)

    run(main())
    assert [time for time, _ in fired] == sorted([0.0, 1.0, 2.0, 3.0, 4.0] * 4)
    assert fired == sorted(fired)


def test_cancelled_timers_are_dropped_long_before_their_time() -> None:
    async def main() -> None:
        loop = cast(SimLoop, asyncio.get_running_loop())
        for _ in range(10_000):
            loop.call_later(3600, print).cancel()
        assert len(loop._timers) <= 2 * CANCELLED_MAX

    run(main())


def test_where_everything_waits_the_simulation_ends() -> None:
    async def main() -> None:
        await asyncio.sleep(5)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"at 5\.000 s"):
        run(main())


def test_a_generator_that_nobody_reads_on_runs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("finally")

    async def main() -> None:
        async for number in numbers():
            assert number == 1
            break
        gc.collect()

    run(main())
    gc.collect()
    assert not ended
    assert not unraisable
