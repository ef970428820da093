"""Coroutines that are driven without a Task until they suspend."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.broker.tasks import eager


def record(into: list[Any]) -> Any:
    return lambda value, error: into.append((value, error))


def test_a_coroutine_that_does_not_suspend_is_done_at_once() -> None:
    async def work() -> int:
        return 7

    done: list[Any] = []
    assert eager.run(work(), record(done))
    assert done == [(7, None)]


def test_its_failure_is_returned_like_its_result() -> None:
    async def work() -> int:
        raise ValueError("no")

    done: list[Any] = []
    assert eager.run(work(), record(done))
    [(value, error)] = done
    assert value is None
    assert isinstance(error, ValueError)


def test_a_suspended_coroutine_continues_where_it_was() -> None:
    async def main() -> None:
        steps: list[str] = []
        first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        second: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> int:
            steps.append("begun")
            total = await first
            steps.append("between")
            return total + await second

        done: list[Any] = []
        assert not eager.run(work(), record(done))
        assert steps == ["begun"]
        first.set_result(1)
        second.set_result(2)
        while not done:
            await asyncio.sleep(0)
        assert steps == ["begun", "between"]
        assert done == [(3, None)]

    asyncio.run(main())


def test_an_exception_of_what_it_waits_for_reaches_it() -> None:
    async def main() -> None:
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            try:
                await waiting
            except OSError as error:
                return f"caught {error}"
            return "nothing came"

        done: list[Any] = []
        eager.run(work(), record(done))
        waiting.set_exception(OSError("disk"))
        while not done:
            await asyncio.sleep(0)
        assert done == [("caught disk", None)]

    asyncio.run(main())


def test_a_failure_after_suspending_is_reported() -> None:
    async def main() -> None:
        async def work() -> None:
            await asyncio.sleep(0)
            raise KeyError("late")

        done: list[Any] = []
        assert not eager.run(work(), record(done))
        while not done:
            await asyncio.sleep(0)
        with pytest.raises(KeyError, match="late"):
            raise done[0][1]

    asyncio.run(main())


def test_a_coroutine_that_was_started_has_its_outcome_in_a_future() -> None:
    async def answered(value: int, *, waits: bool) -> int:
        if waits:
            await asyncio.sleep(0)
        if value < 0:
            raise ValueError(value)
        return value

    async def main() -> None:
        for waits in (False, True):
            assert await eager.start(answered(1, waits=waits)) == 1
            with pytest.raises(ValueError, match="-1"):
                await eager.start(answered(-1, waits=waits))

    asyncio.run(main())


@pytest.mark.parametrize("is_closed_before", [False, True])
def test_what_nothing_waits_for_any_longer_is_closed_in_any_order(is_closed_before: bool) -> None:
    """So are the tasks of a loop that has ended, which are garbage together."""
    closed: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append("work")

    async def body() -> None:
        coroutine = work()
        relay = eager._relay(coroutine, coroutine.send(None))
        assert isinstance(relay.send(None), asyncio.Future)
        if is_closed_before:
            coroutine.close()
        relay.close()
        assert closed == ["work"]

    asyncio.run(body())
