"""Long work on the loop, cut into slices: between two of them other requests have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def sliced(items: Sequence[T], size: int) -> AsyncIterator[T]:
    """The items in order. More than ``size`` of them are not begun in the turn that decoded them, and pause after every ``size``."""
    pauses = len(items) > size
    for at, item in enumerate(items):
        if pauses and at % size == 0:
            await asyncio.sleep(0)
        yield item
