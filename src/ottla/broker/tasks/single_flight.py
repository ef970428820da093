"""One run at a time, without a lock: who comes during a run waits, and then runs for all that has gathered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.broker.tasks.waiters import Waiters


class SingleFlight:
    """Runs of one coroutine function. A call returns when a complete run that started after the call has ended.

    The uncontended call suspends only where the function itself does.
    """

    __slots__ = ("_is_running", "_run", "_waiters")

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self._run = run
        self._is_running = False
        self._waiters = Waiters()

    @property
    def is_running(self) -> bool:
        return self._is_running

    async def __call__(self, instead: Callable[[], Awaitable[None]] | None = None) -> None:
        """Runs a turn; with ``instead``, that is done in this turn."""
        while self._is_running:
            await self._waiters.wait()
        self._is_running = True
        try:
            await (self._run if instead is None else instead)()
        finally:
            self._is_running = False
            self._waiters.wake()
