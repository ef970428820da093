"""Coroutines that usually do not suspend, run without a Task.

``run`` drives a coroutine until it returns or first suspends. Only in the second case is a Task made, which continues from
there. On the hot path (appends to the page cache, warm reads) that second case is rare, and a Task costs 10 us.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from ottla.broker.tasks.process import process_state

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T], on_done: Callable[[T | None, BaseException | None], None]) -> bool:
    """True when the coroutine finished at once; ``on_done`` was then called. Else it is called when its Task ends."""
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        on_done(stop.value, None)
        return True
    except Exception as error:  # noqa: BLE001 - the edge of a task: its owner gets the error
        on_done(None, error)
        return True
    task = asyncio.get_running_loop().create_task(_go_on(coroutine, awaited))
    running = process_state().running
    running.add(task)  # the loop itself keeps only weak references

    def finished(task: asyncio.Task[T]) -> None:
        running.discard(task)
        if task.cancelled():
            on_done(None, asyncio.CancelledError())
            return
        error = task.exception()
        on_done(None if error else task.result(), error)

    task.add_done_callback(finished)
    return False


def start(coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Starts the coroutine as ``run`` does. Returns a future of what it returns or raises."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def note(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)  # type: ignore[arg-type]  # it is None where the coroutine returns that
        else:
            future.set_exception(error)

    run(coroutine, note)
    return future


async def _go_on(coroutine: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _relay(coroutine, awaited)


@types.coroutine
def _relay(coroutine: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Hands on what the coroutine waits for, starting with what it was already waiting for."""
    while True:
        sent, thrown = None, None
        try:
            sent = yield awaited
        except GeneratorExit:  # nothing waits for it any longer, and it may have been closed already, as garbage in any order
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - handed on into the coroutine
            thrown = error
        try:
            awaited = coroutine.send(sent) if thrown is None else coroutine.throw(thrown)
        except StopIteration as stop:
            value: T = stop.value
            return value
