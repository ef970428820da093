"""One run at a time."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.tasks.single_flight import SingleFlight


def test_runs_never_overlap_and_each_caller_sees_a_complete_run() -> None:
    async def main() -> None:
        running = 0
        begun: list[int] = []

        async def work() -> None:
            nonlocal running
            assert running == 0, "runs do not overlap"
            running += 1
            begun.append(len(begun))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running -= 1

        turns = SingleFlight(work)

        async def call() -> tuple[int, int]:
            before = len(begun)
            await turns()
            return before, len(begun)

        results = await asyncio.gather(*(call() for _ in range(5)))
        assert all(after > before for before, after in results), "a run began after each call"

    asyncio.run(main())


def test_a_failed_run_fails_its_caller_and_lets_the_next_one_in() -> None:
    async def main() -> None:
        attempts = 0

        async def work() -> None:
            nonlocal attempts
            attempts += 1
            await asyncio.sleep(0)
            if attempts == 1:
                raise OSError("first")

        turns = SingleFlight(work)
        first, second = await asyncio.gather(turns(), turns(), return_exceptions=True)
        assert isinstance(first, OSError)
        assert second is None
        assert attempts == 2

    asyncio.run(main())


def test_an_uncontended_call_does_not_suspend() -> None:
    async def work() -> None:
        return

    coroutine = SingleFlight(work)()
    with pytest.raises(StopIteration):
        coroutine.send(None)
