"""Long work on the loop, in slices: others have their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from ottla.ports import Clock

T = TypeVar("T")

SLICE_US: Final = 10_000


class Slices:
    """Made where the work begins; ``await slices.next()`` between its parts, wherever the state may change meanwhile."""

    __slots__ = ("_clock", "_until_us")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_us = clock.monotonic_us() + SLICE_US

    async def next(self) -> None:
        """Suspends when this slice has been long enough."""
        if self._clock.monotonic_us() >= self._until_us:
            await asyncio.sleep(0)
            self._until_us = self._clock.monotonic_us() + SLICE_US


async def sliced(items: Sequence[T], size: int) -> AsyncIterator[T]:
    """The items in order. More than ``size`` of them are not begun in the turn that decoded them, and pause after every ``size``."""
    pauses = len(items) > size
    for at, item in enumerate(items):
        if pauses and at % size == 0:
            await asyncio.sleep(0)
        yield item
