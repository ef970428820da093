"""An event loop in a thread of its own, and objects that live on it, driven from outside.

While the caller waits for a coroutine, the coroutine may have functions of the application called in the caller's thread: a callback can
therefore use the blocking object; on the loop's own thread that would deadlock.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Set
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, NoReturn, ParamSpec, Self, TypeVar

from ottla import aio
from ottla.client.face import not_copied
from ottla.client.usable import closed
from ottla.errors import ErrorCode, KafkaError

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
X = TypeVar("X")
Inner = TypeVar("Inner", aio.Producer, "aio.Consumer[Any, Any]", aio.Admin)

_Call = tuple[Callable[..., object], tuple[Any, ...], "asyncio.Future[object]"]
_caller: contextvars.ContextVar[SimpleQueue[Any]] = contextvars.ContextVar("caller")


async def in_caller(function: Callable[..., object], *arguments: Any) -> object:
    """Returns what the function returns, called in the thread that waits for the running coroutine."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    _caller.get().put((function, arguments, done))
    return await done


log: Final = logging.getLogger("ottla.client")  # as in watch.py
END_SECONDS_MAX: Final = 5
"""What was cancelled has ended by then, unless it refuses to."""


class LoopThread:
    """A daemon: a program that ends without closing its clients does not wait for them."""

    def __init__(self, name: str = "ottla-client") -> None:
        self.loop = asyncio.new_event_loop()
        self._starting = threading.Lock()  # of a call, or of the end: no call is left without an outcome
        self._ender: int | None = None  # the thread that ends the calls of others, and may still call
        self._is_stopped = False
        self.is_of_parent = False  # this process was forked; the thread is the parent's, and does not run here
        self.on_fork: Callable[[], Callable[[], None] | None] = lambda: None  # a weak reference, or none
        self.unfinished_bytes: Callable[[], Callable[[], int] | None] = lambda: None  # as that one
        self._calls: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the coroutine's result. When the caller is interrupted, the coroutine is cancelled and has ended before this raises.

        INVALID_REQUEST once another thread has ended all calls, and when it does so meanwhile; and where no outcome could ever come: on
        the loop's own thread, and in a process that was forked.
        """
        try:
            self.check()
        except KafkaError:
            coroutine.close()
            raise
        outcomes: SimpleQueue[Any] = SimpleQueue()
        context = contextvars.copy_context()
        context.run(_caller.set, outcomes)
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self.loop.create_task(coroutine, context=context)
            tasks.append(task)
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
            task.add_done_callback(outcomes.put)

        try:
            with self._starting:
                if self._is_stopped or self._ender not in (None, threading.get_ident()):
                    coroutine.close()
                    raise closed()
                self.loop.call_soon_threadsafe(start)
            while not isinstance(outcome := outcomes.get(), asyncio.Task):
                self._answer(outcome)
        except KafkaError:  # nothing was started
            raise
        except BaseException:
            # The interrupt may come after the outcome was taken out of its queue, so another one says that the coroutine has ended.
            ended: SimpleQueue[object] = SimpleQueue()

            def cancel() -> None:
                if not tasks:  # the interrupt came before the start was asked for, which the loop would have done first
                    coroutine.close()
                    ended.put(None)
                    return
                tasks[0].cancel()
                tasks[0].add_done_callback(ended.put)

            self.loop.call_soon_threadsafe(cancel)
            ended.get()
            raise
        if outcome.cancelled():  # not by an interrupt of this thread
            raise closed()
        result: T = outcome.result()
        return result

    def call(self, function: Callable[[], T]) -> T:
        """Calls the function on the loop, and returns its result."""
        if self.is_current():
            return function()

        async def run() -> T:
            return function()

        return self.run(run())

    def is_current(self) -> bool:
        """Returns True on the loop's own thread, as within ``on_delivery``. Its number may be another thread's once it has ended."""
        return threading.get_ident() == self._thread.ident and not self._is_stopped

    def check(self) -> None:
        """Raises INVALID_REQUEST where the caller would wait for ever."""
        if self.is_of_parent:
            text = "this client was made before a fork, in the parent process: make one in this process"
        elif self.is_current():
            text = "a callback of this client may not wait for it, since it runs in the client's own thread; it may call send"
        else:
            return
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def in_child(self) -> None:
        """Marks this thread as the parent's. Its lock may be held by another thread, which is not in this process."""
        self.is_of_parent = True
        self._starting = threading.Lock()
        on_fork = self.on_fork()
        if on_fork is not None:
            on_fork()

    def _answer(self, call: _Call) -> None:
        function, arguments, done = call
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001 - the application's code; the coroutine raises it, and so does run
            self._report(_set, done.set_exception, done, error)
        else:
            self._report(_set, done.set_result, done, result)

    def _report(self, *call: Any) -> None:
        """Calls on the loop, unless the function of the application has closed the client: the coroutine that asked has ended then."""
        if not self._is_stopped:
            self.loop.call_soon_threadsafe(*call)

    def end_calls(self) -> None:
        """Ends the calls of other threads: those that wait raise INVALID_REQUEST, and so does each later one."""
        with self._starting:
            self._ender = threading.get_ident()
        self.run(_end(lambda: self._calls))

    def stop(self) -> None:
        """Ends all that runs on the loop, and stops it."""
        try:
            with self._starting:
                self._ender = threading.get_ident()
            self.run(_end(asyncio.all_tasks))
        finally:
            with self._starting:
                self._is_stopped = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
            _running.discard(self)


async def _end(tasks: Callable[[], Set[asyncio.Task[Any]]]) -> None:
    """Cancels the tasks but this one, and waits until they have ended, or for ``END_SECONDS_MAX``."""
    left = tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=END_SECONDS_MAX)


_running: set[LoopThread] = set()  # a thread runs on when its client is forgotten


def _abandon() -> None:
    """Lets the tasks of clients that were not closed end with the process: asyncio has nothing to say about each of them.

    What they have not done is said once.
    """
    for thread in list(_running):
        thread.loop.set_exception_handler(lambda loop, context: None)
    sizes = [size() for thread in list(_running) if not thread.is_of_parent and (size := thread.unfinished_bytes()) is not None]
    if lost := sum(sizes):
        log.warning(
            "the program ends with %s bytes of records that are not acknowledged: make a Producer with `with`, or close it", f"{lost:,}"
        )


atexit.register(_abandon)


def _in_child() -> None:
    for thread in list(_running):
        thread.in_child()


os.register_at_fork(after_in_child=_in_child)


def _set(setter: Callable[[Any], None], done: asyncio.Future[object], outcome: object) -> None:
    if not done.done():
        setter(outcome)


class Blocking(Generic[Inner]):
    """One asynchronous object, driven from outside its loop."""

    def __init__(self, make: Callable[[], Inner]) -> None:
        self._thread = LoopThread()
        try:
            self._inner: Inner = self._thread.call(make)
        except BaseException:
            self._thread.stop()
            raise
        self._unclosed = self._inner._unclosed.replace(f"ottla.sync.{type(self).__name__}", "make it with `with`, or call `client.close()`")
        self._is_closed = False
        self._thread.on_fork = weakref.WeakMethod(self._in_child)
        self._thread.unfinished_bytes = weakref.WeakMethod(self._unfinished_bytes)

    def _in_child(self) -> None:
        """Does what is needed in a child process of the client's own."""

    def _unfinished_bytes(self) -> int:
        """Returns the size of what is lost when the program ends now."""
        return 0

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine on the object's loop, and returns its result."""
        return self._thread.run(coroutine)

    def close(self) -> None:
        """Closes the connections. A second call does nothing.

        In a process that was forked it does nothing, either.
        """
        if self._is_closed or self._thread.is_of_parent:
            return
        self._is_closed = True
        try:
            self._run(self._inner.close())
        finally:
            self._thread.stop()

    def __repr__(self) -> str:
        """Returns the client's class, name and brokers, and whether it is open; nothing secret."""
        inner = self.__dict__.get("_inner")
        return object.__repr__(self) if inner is None else inner._text(f"ottla.sync.{type(self).__name__}", is_closed=self._is_closed)

    def __reduce__(self) -> NoReturn:
        """Refuses a copy, as of ``pickle``."""
        raise not_copied(self)

    def __enter__(self) -> Self:
        """Returns the client; INVALID_REQUEST when it is closed."""
        if self._is_closed:
            raise closed()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Closes as ``close`` does; a DeliveryError becomes a note of the error that ended the block, where there is one."""
        try:
            self.close()
        except aio.DeliveryError as failures:
            if error is None:
                raise
            error.add_note(str(failures))


def blocking(method: Callable[Concatenate[X, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Returns the coroutine method of the asynchronous object as a blocking method: same arguments, same docstring."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = self._run(method(self._inner, *arguments, **options))
        return result

    return call


def on_loop(method: Callable[Concatenate[X, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Returns the plain method of the asynchronous object, to be called on its loop: same arguments, same docstring."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = self._thread.call(lambda: method(self._inner, *arguments, **options))
        return result

    return call
