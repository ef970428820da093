"""Long work on the loop, in slices: others have their turn in between.

However many do long work, a few of them go on in each turn of the loop: those who ask for little wait for those slices, and no longer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from ottla.broker.tasks.process import process_state
from ottla.ports import Clock

T = TypeVar("T")

SLICE_US: Final = 5_000
SHORT_SLICE_US: Final = 1_000
"""For work that goes on beside others of its kind, and for which no request waits."""
SLICES_A_TURN: Final = 2
_SORTED_AT_ONCE: Final = 5_000


async def pause() -> None:
    """Pauses until others have had their turn, and earlier pauses have ended."""
    loop = asyncio.get_running_loop()
    paused = process_state().paused
    if not paused:
        loop.call_soon(_go_on, loop, paused)
    future: asyncio.Future[None] = loop.create_future()
    paused.append(future)
    await future


def _go_on(loop: asyncio.AbstractEventLoop, paused: deque[asyncio.Future[None]]) -> None:
    for _ in range(min(SLICES_A_TURN, len(paused))):
        future = paused.popleft()
        if not future.done():
            future.set_result(None)
    if paused:
        loop.call_soon(_go_on, loop, paused)


class Slices:
    """A division of long work into slices, made where the work starts. The work pauses where the state may change meanwhile."""

    __slots__ = ("_clock", "_slice_us", "_until_us")

    def __init__(self, clock: Clock, *, is_short: bool = False) -> None:
        self._clock = clock
        self._slice_us = SHORT_SLICE_US if is_short else SLICE_US
        self._until_us = clock.monotonic_us() + self._slice_us

    async def next(self) -> None:
        """Suspends when this slice has been long enough."""
        if self._clock.monotonic_us() >= self._until_us:
            await pause()
            self._until_us = self._clock.monotonic_us() + self._slice_us

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yields the items in order, with a pause where this slice has been long enough."""
        for item in items:
            if self._clock.monotonic_us() >= self._until_us:
                await pause()
                self._until_us = self._clock.monotonic_us() + self._slice_us
            yield item

    async def over_distinct(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yields as ``over`` does, each item once."""
        seen: set[T] = set()
        async for item in self.over(items):
            if item not in seen:
                seen.add(item)
                yield item

    async def over_sorted(self, texts: Sequence[str]) -> AsyncIterator[str]:
        """Yields as ``over`` does, in the order of the texts."""
        runs = [sorted(texts[at : at + _SORTED_AT_ONCE]) async for at in self.over(range(0, len(texts), _SORTED_AT_ONCE))]
        async for text in self.over(heapq.merge(*runs)):
            yield text


def drained(items: list[T]) -> Iterator[T]:
    """Yields the items in order, each of which leaves the list: what is made by the hundred thousand must not be freed in one turn."""
    items.reverse()
    while items:
        yield items.pop()


async def sliced(items: Iterable[T], size: int) -> AsyncIterator[T]:
    """Yields the items in order, with a pause after every ``size`` of them, whatever the clock says."""
    for at, item in enumerate(items):
        if at and at % size == 0:
            await pause()
        yield item
