"""Gates before and after an asynchronous call: what two parts do at once is done in the order that the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


class Gate:
    """A gate that is shut, until ``open``. ``count`` callers have come to it by now."""

    def __init__(self) -> None:
        self.count = 0
        self._arrived = asyncio.Condition()
        self._opened: set[int] = set()
        self._is_open = False

    async def reached(self, count: int = 1) -> None:
        """Returns when so many callers have come."""
        async with asyncio.timeout(120), self._arrived:
            await self._arrived.wait_for(lambda: self.count >= count)

    async def open(self, *numbers: int) -> None:
        """Lets everybody through, or the callers with these numbers, of which the first is 0."""
        self._is_open |= not numbers
        self._opened |= set(numbers)
        async with self._arrived:
            self._arrived.notify_all()

    async def passed(self) -> None:
        """Waits as a caller does."""
        number = self.count
        self.count += 1
        async with self._arrived:
            self._arrived.notify_all()
            await self._arrived.wait_for(lambda: self._is_open or number in self._opened)


def always(*given: Any, **named: Any) -> bool:
    return True


@contextmanager
def gate_before(owner: object, name: str, only: Callable[..., bool] = always) -> Iterator[Gate]:
    """Calls of the owner's method or the module's function wait before anything is done; those for whose arguments ``only`` is true."""
    gate, call = Gate(), getattr(owner, name)

    async def gated(*given: Any, **named: Any) -> Any:
        if only(*given, **named):
            await gate.passed()
        return await call(*given, **named)

    with mock.patch.object(owner, name, gated):
        yield gate


@contextmanager
def gate_after(owner: object, name: str, only: Callable[..., bool] = always) -> Iterator[Gate]:
    """The calls are done, and what they return waits."""
    gate, call = Gate(), getattr(owner, name)

    async def gated(*given: Any, **named: Any) -> Any:
        is_meant = only(*given, **named)
        try:
            return await call(*given, **named)
        finally:
            if is_meant:
                await gate.passed()

    with mock.patch.object(owner, name, gated):
        yield gate
