"""An event loop whose time is a number.

When nothing is ready the clock jumps to the next timer; it never waits. When nothing is ready and no timer is set, the task that
runs the loop waits for something that cannot come, and ``Deadlock`` says so. Virtual time is bounded, so that a simulation
that makes no progress ends as well.

Every callback is a process's (``process.py``), or of none. ``time`` is what the clock of the running process shows; ``now`` is the
time of the world.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from structlog.testing import capture_logs

from ottla.sim.process import CURRENT, Process

T = TypeVar("T")

VIRTUAL_SECONDS_MAX: Final = 24 * 3600.0
ENDS_MAX: Final = 10
CANCELLED_MAX: Final = 100
"""So many cancelled timers may stay until their time comes."""


class Deadlock(AssertionError):
    """Everything waits, and nothing is scheduled that could end it."""


class _Handle(asyncio.Handle):
    """A callback of the process in whose context it was made."""

    __slots__ = ("process",)

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...], loop: SimLoop, context: Context | None) -> None:
        super().__init__(callback, arguments, loop, context)
        self.process: Process | None = self._context.get(CURRENT)  # type: ignore[attr-defined]


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ("process",)

    def __init__(
        self, when: float, callback: Callable[..., object], arguments: tuple[Any, ...], loop: SimLoop, context: Context | None
    ) -> None:
        super().__init__(when, callback, arguments, loop, context)
        self.process: Process | None = self._context.get(CURRENT)  # type: ignore[attr-defined]


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of a simulation, made by ``run``."""

    _ready: deque[_Handle | _TimerHandle]  # the base class's

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made: WeakKeyDictionary[asyncio.Task[Any], tuple[int, Process | None]] = WeakKeyDictionary()  # tasks, as they are made
        self._made_count = 0
        self._timers: list[tuple[float, int, _TimerHandle]] = []  # a heap; timers of one moment run in the order in which they were set
        self._timer_count = 0
        self._cancelled_count = 0  # of those in the heap
        self._dead: dict[Process, list[asyncio.Task[Any]]] = {}
        self._has_ended = False

    def _run_once(self) -> None:
        """Runs what is ready, and nothing that becomes ready meanwhile; when nothing is, the clock jumps."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._cancelled_count -= 1
        if not ready:
            if timers:
                self._jump(timers[0][0])
            elif not self._stopping:  # type: ignore[attr-defined]
                raise Deadlock(f"at {self.now:.3f} s of virtual time everything waits and nothing is scheduled")
        while timers and timers[0][0] <= self.now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            self._cancelled_count -= timer.cancelled()
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle.process
            if process is None or process.is_running:
                handle._run()
            else:
                process.withhold(handle)

    def _jump(self, when: float) -> None:
        self.now = max(self.now, when)
        if self.now > VIRTUAL_SECONDS_MAX:
            raise AssertionError(f"the simulation has run for more than {VIRTUAL_SECONDS_MAX:.0f} virtual seconds")

    def _timer_handle_cancelled(self, handle: Any) -> None:
        self._cancelled_count += handle._scheduled

    # Callbacks and tasks

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        """Calls back at ``when``, a time of the calling process's clock."""
        process = CURRENT.get()
        return self.at(when if process is None else process.clock.real(when), callback, *args, context=context)

    def at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """Calls back at ``when``, a time of the world."""
        timer = _TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        if self._cancelled_count > CANCELLED_MAX and self._cancelled_count > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_count = 0
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def create_task(self, *arguments: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(*arguments, **options)
        context = options.get("context")
        process = CURRENT.get() if context is None else context.get(CURRENT)
        self._made_count += 1
        self.made[task] = self._made_count, process
        if process is not None and process.is_dead:  # by what it still does in this turn
            self._dead[process].append(task)
        return task

    def tasks(self) -> list[tuple[asyncio.Task[Any], Process | None]]:
        """Returns the unfinished tasks in order of creation, each with its process."""
        found = [(*self.made[task], task) for task in asyncio.all_tasks(self)]  # a set's order is that of addresses
        return [(task, process) for _, process, task in sorted(found, key=lambda entry: entry[0])]

    def requeue(self, handles: Iterable[Any]) -> None:
        self._ready.extend(handles)

    def bury(self, process: Process) -> None:
        self._dead[process] = [task for task, owner in self.tasks() if owner is process]

    # Time

    def time(self) -> float:
        process = CURRENT.get()
        return self.now if process is None else process.clock.local(self.now)

    # What a simulated loop has not

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise AssertionError("a simulated loop has no threads")

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        raise AssertionError("a simulated loop has one thread")

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Drops a generator that a killed process left behind without finishing it: what is killed runs nothing further."""
        self._asyncgens.discard(agen)  # type: ignore[attr-defined]

    # The end

    def call_exception_handler(self, context: Any) -> None:
        if not self._has_ended:
            super().call_exception_handler(context)

    def kill_all(self) -> None:
        for _, process in self.tasks():
            if process is not None:
                process.kill()

    def end(self) -> None:
        """Closes the loop, and frees what killed processes left behind."""
        self._has_ended = True
        self.close()
        dead, self._dead = self._dead, {}
        with warnings.catch_warnings(), capture_logs():  # their ``finally`` runs now, in no loop: what it says has no owner
            warnings.simplefilter("ignore")
            unraisable, sys.unraisablehook = sys.unraisablehook, lambda _: None
            try:
                for process, tasks in dead.items():
                    process.disintegrate(tasks)
            finally:
                sys.unraisablehook = unraisable


def run(main: Coroutine[Any, Any, T]) -> T:
    """Returns the result of ``main``, run in virtual time. Kills the processes that are left then, and cancels other tasks."""
    loop = SimLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.kill_all()
        _cancel_all(loop)
        asyncio.set_event_loop(None)
        loop.end()


def _cancel_all(loop: SimLoop) -> None:
    for _ in range(ENDS_MAX):  # what is cancelled may start something to put itself in order
        tasks = [task for task, process in loop.tasks() if process is None]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
