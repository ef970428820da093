"""Tasks that a client runs for itself, beside the calls of the application."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def background(coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
    """Starts the coroutine on the running loop.

    Of a task that is destroyed while it is pending asyncio says nothing: it belongs to a client that was dropped without ``close``, and the
    application is warned of that (``unclosed.py``), with the line that it can change.
    """
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # of each task of CPython, as asyncio itself sets it
    return task


async def end(task: asyncio.Task[Any] | None) -> None:
    """Cancels the task, if there is one, and waits for its end."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
