"""A process of a simulated machine: what it started runs while it runs, waits while it is paused, and is dropped when it is killed.

Code knows its process by a context variable, which asyncio hands on: tasks, callbacks and timers that code of a process makes are
that process's own. Code outside of all processes (the test, the run that drives a simulation) is never stopped.

A killed process runs nothing more: no ``finally``, no ``except CancelledError``, no callback of a future. Its coroutines are kept as
they stand until the world ends, for Python would run their ``finally`` when it frees them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, ContextVar
from typing import Any, Final, Protocol, TypeVar, cast

from ottla.broker.tasks.process import PROCESS_STATE, ProcessState
from ottla.sim.clock import SimClock

T = TypeVar("T")

CLOSES_MAX: Final = 100


class PowerCut(BaseException):
    """The process is dead, or its machine down: raised in code outside of it that waits for it or uses its disk."""


class Loop(Protocol):
    """The simulated loop, as processes know it."""

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context) -> object: ...
    def create_task(self, coroutine: Coroutine[Any, Any, T], *, context: Context) -> asyncio.Task[T]: ...
    def create_future(self) -> asyncio.Future[Any]: ...

    def requeue(self, handles: Iterable[asyncio.Handle]) -> None:
        """Schedules the handles next, in this order, after those that are ready."""
        ...

    def bury(self, process: Process) -> None:
        """Keeps the tasks of the dead process as they are until the world ends."""
        ...


class Process:
    def __init__(self, name: str, clock: SimClock) -> None:
        self.name = name
        self.clock = clock
        self._loop = cast(Loop, asyncio.get_running_loop())
        self.is_running = True
        self.is_dead = False
        self.context = Context()
        self.context.run(CURRENT.set, self)
        self._state = ProcessState()
        self.context.run(PROCESS_STATE.set, self._state)
        self._withheld: list[asyncio.Handle] = []
        self._awaited: set[asyncio.Future[Any]] = set()  # by code outside
        self.remains: list[Any] = []  # what must not be freed before the world ends

    def withhold(self, handle: asyncio.Handle) -> None:
        """Withholds a handle that has come due while the process does not run."""
        self._withheld.append(handle)

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls the function in the process: now, after ``resume`` when it is paused, never when it is dead. For code outside of it."""
        if self.is_running:
            self.context.run(function, *arguments)
        elif not self.is_dead:
            self._loop.call_soon(function, *arguments, context=self.context)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts the coroutine as a task of the process."""
        return self._loop.create_task(coroutine, context=self.context.copy())

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the result of what the process does, for code outside of it. PowerCut when the process dies meanwhile."""
        if self.is_dead:
            coroutine.close()
            raise PowerCut
        task = self.begin(coroutine)
        ended = self._loop.create_future()
        self._awaited.add(ended)
        task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        try:
            await ended
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._awaited.discard(ended)
        return task.result()

    def pause(self) -> None:
        """Stops the process until ``resume``, as SIGSTOP or a long garbage collection does."""
        self.is_running = False

    def resume(self) -> None:
        """Runs what has come due meanwhile, in order."""
        if self.is_dead or self.is_running:
            return
        self.is_running = True
        withheld, self._withheld = self._withheld, []
        self._loop.requeue(withheld)

    def kill(self) -> None:
        """Kills the process: nothing of it runs from now on. Called from within it, that holds from its next ``alive`` on."""
        if self.is_dead:
            return
        self.is_running, self.is_dead = False, True
        self._loop.bury(self)
        awaited, self._awaited = self._awaited, set()
        for future in awaited:
            if not future.done():
                future.set_exception(PowerCut())

    def disintegrate(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Frees what is left of the process, unnoticed: the world has ended, and with it the loop."""
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self._state.running.clear()
        self._state.paused.clear()
        self._withheld.clear()
        self.remains.clear()


CURRENT: Final[ContextVar[Process | None]] = ContextVar("simulated_process", default=None)
"""The process that the running code is part of."""


async def alive() -> None:
    """Returns at once, but never to a process that has been killed: the operations of its ports end here."""
    process = CURRENT.get()
    while process is not None and process.is_dead:
        await asyncio.get_running_loop().create_future()


def _close(coroutine: Any) -> None:
    """Ends the coroutine, whatever it does about that; its ``finally`` may await a few times."""
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:  # what it was going to drive has started, perhaps
        for value in coroutine.cr_frame.f_locals.values():
            if inspect.iscoroutine(value):
                _close(value)
    for _ in range(CLOSES_MAX):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001 - of a process that is dead, in a world that has ended
            continue
        return
