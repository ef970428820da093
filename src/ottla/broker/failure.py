"""Why a node cannot go on, once it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.loggers import get_logger

log = get_logger(__name__)

T = TypeVar("T")


class Failure:
    """The reason for which one node has to end. ``on_failure`` is called when the first reason is noted."""

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._on_failure = on_failure
        self._error: BaseException | None = None
        self._has_failed = asyncio.Event()
        self.reason: str | None = None
        """The first one: others may follow from it."""

    def note(self, reason: str, error: BaseException | None = None) -> None:
        """Notes that the node must end. With an ``error``, ``unless`` raises it to its callers."""
        if error is not None:
            self._error = error
            self._has_failed.set()
        if self.reason is None:
            self.reason = reason
            log.critical("broker_failed", reason=reason)
            self._on_failure()

    async def unless(self, going_on: Coroutine[Any, Any, T]) -> T:
        """Returns the result; raises what makes the node fail meanwhile."""
        task, failed = asyncio.create_task(going_on), asyncio.create_task(self._raised())
        try:
            await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            failed.result()
            raise AssertionError("it has failed")
        finally:
            task.cancel()
            failed.cancel()

    async def _raised(self) -> None:
        await self._has_failed.wait()
        assert self._error is not None, "it has failed"
        raise self._error
