"""Long work in rounds, each a Task of its own, the next one a while after the one before has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.loggers import get_logger
from ottla.ports import TimerHandle, World

log = get_logger(__name__)


class Rounds:
    """One round at a time of ``work``; a failure is logged as ``<name>_failed`` and ends that round alone.

    ``pause_ms`` is asked after each round, so that a changed configuration holds from then on.
    """

    def __init__(self, world: World, name: str, work: Callable[[], Coroutine[Any, Any, None]], pause_ms: Callable[[], int]) -> None:
        self._world = world
        self._name = name
        self._work = work
        self._pause_ms = pause_ms
        self._timer: TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None

    def start(self, delay_ms: int) -> None:
        """Starts the first round after ``delay_ms``."""
        self._timer = self._world.timers.call_later_ms(delay_ms, self._begin)

    async def stop(self) -> None:
        """Stops: no round is on, and none will start."""
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    def _begin(self) -> None:
        self._round = asyncio.get_running_loop().create_task(self._work())
        self._round.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._round = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error(f"{self._name}_failed", exc_info=task.exception())
        self.start(self._pause_ms())
