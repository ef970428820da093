"""Coroutines that wait until another one says that something has happened. Cancelled ones are left out.

Nothing here needs a Task: a handler that ``eager`` drives may wait, so ``asyncio.timeout`` has no place.
"""

from __future__ import annotations

import asyncio
import heapq

from ottla.ports import Timers


class Waiters:
    """The coroutines that wait for one event. After it each of them looks again at what it waits for."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[None], None] = {}  # in the order in which they came

    async def wait(self) -> None:
        """Waits for the next ``wake``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures[future] = None
        try:
            await future
        finally:
            self._futures.pop(future, None)

    async def wait_at_most(self, timers: Timers, timeout_ms: int) -> None:
        """Waits for the next ``wake``, or until the time is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures[future] = None
        timer = timers.call_later_ms(timeout_ms, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            timer.cancel()
            self._futures.pop(future, None)

    def wake(self) -> None:
        """Wakes all that wait now."""
        futures, self._futures = self._futures, {}
        for future in futures:
            if not future.done():
                future.set_result(None)


class OffsetWaiters:
    """The coroutines that wait until something has advanced to an offset, each to its own."""

    __slots__ = ("_count", "_futures")

    def __init__(self) -> None:
        self._futures: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._count = 0  # orders waiters for one offset: futures have no order

    async def wait(self, end_offset: int) -> None:
        """Waits for an ``advance`` that is not below ``end_offset``; raises the error of a ``fail``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._futures, (end_offset, self._count, future))
        await future

    def advance(self, end_offset: int) -> None:
        """Wakes all that wait for ``end_offset`` or less."""
        while self._futures and self._futures[0][0] <= end_offset:
            _, _, future = heapq.heappop(self._futures)
            if not future.done():
                future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Fails all that wait now."""
        futures, self._futures = self._futures, []
        for _, _, future in futures:
            if not future.done():
                future.set_exception(error)
