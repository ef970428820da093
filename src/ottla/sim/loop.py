"""An event loop whose time is a number.

When nothing is ready the clock jumps to the next timer; it never waits. When nothing is ready and no timer is set, the task that
runs the loop waits for something that cannot come, and ``Deadlock`` says so. Virtual time is bounded, so that a simulation
that makes no progress ends as well.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

VIRTUAL_SECONDS_MAX: Final = 24 * 3600.0
ENDS_MAX: Final = 10


class Deadlock(AssertionError):
    """Everything waits, and nothing is scheduled that could end it."""


class _NoSelector(selectors.BaseSelector):
    """Instead of waiting it moves the loop's clock."""

    def __init__(self) -> None:
        self.loop: SimLoop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise AssertionError("a simulated loop has no file descriptors")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise AssertionError("a simulated loop has no file descriptors")

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock(f"at {self.loop.time():.3f} s of virtual time everything waits and nothing is scheduled")
        if timeout > 0:
            self.loop.advance(timeout)
        return []

    def close(self) -> None:
        """Nothing to close."""

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class SimLoop(asyncio.SelectorEventLoop):
    """Made by ``run``. The self-pipe of the base class, which wakes a real loop from other threads, is left out."""

    def __init__(self) -> None:
        self._now = 0.0
        self.made: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()  # tasks, numbered as they are made
        self._made_count = 0
        selector = _NoSelector()
        super().__init__(selector)
        selector.loop = self

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None

    def _close_self_pipe(self) -> None:
        """There is none."""

    def _write_to_self(self) -> None:
        raise AssertionError("a simulated loop has one thread")

    def create_task(self, *arguments: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(*arguments, **options)
        self.made[task] = self._made_count = self._made_count + 1
        return task

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
        if self._now > VIRTUAL_SECONDS_MAX:
            raise AssertionError(f"the simulation has run for more than {VIRTUAL_SECONDS_MAX:.0f} virtual seconds")

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise AssertionError("a simulated loop has no threads")

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        raise AssertionError("a simulated loop has one thread")

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator that a killed process left behind is not brought to its end: what is killed runs nothing more."""
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]


def run(main: Coroutine[Any, Any, T]) -> T:
    """The result of ``main``, in virtual time. Tasks that are still running then are cancelled."""
    loop = SimLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        _cancel_all(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _cancel_all(loop: SimLoop) -> None:
    for _ in range(ENDS_MAX):  # what is cancelled may begin something to put itself in order
        tasks = sorted(asyncio.all_tasks(loop), key=lambda task: loop.made.get(task, 0))  # a set's order is that of addresses
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
