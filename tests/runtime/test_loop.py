"""The turns of a loop are measured in processor time."""

from __future__ import annotations

import asyncio
import time

from ottla.runtime.loop import MeasuredLoop, take_longest_turn_seconds


async def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        continue
    await asyncio.sleep(0)


def test_the_longest_turn_since_the_last_look_is_reported() -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        take_longest_turn_seconds()
        await busy(0.02)
        await busy(0.06)
        await asyncio.sleep(0)
        assert take_longest_turn_seconds() >= 0.06
        time.sleep(0.05)  # waiting is no work: a machine that is busy with others does not look like a long request
        await asyncio.sleep(0)
        assert take_longest_turn_seconds() < 0.05

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(main())


def test_a_loop_that_is_not_measured_reports_nothing() -> None:
    async def main() -> float:
        await busy(0.01)
        return take_longest_turn_seconds()

    assert asyncio.run(main()) == 0
