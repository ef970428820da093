"""What a shard wants of others: carried out in the order in which it was decided, and in slices where thousands are due at once.

That happens when as many transactions run out of time together, and when a shard is loaded that has as many decisions without an end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.loggers import get_logger
from ottla.ports import World

log = get_logger(__name__)

LOOK_EVERY: Final = 8
"""Effects between two looks at the clock: the markers of a transaction take some tenths of a millisecond."""


class OwedEffects:
    """The effects of one shard that are still to be carried out."""

    def __init__(self, world: World, carry_out: Callable[[Any], None]) -> None:
        self._world = world
        self._carry_out = carry_out
        self._owed: deque[Any] = deque()
        self._is_running = False
        self._is_closed = False

    def add(self, effects: Iterable[Any]) -> None:
        """Carries the effects out, after those that were added before: at once, unless they are many."""
        if not self._is_closed:
            self._owed.extend(effects)
            if self._owed and not self._is_running:
                eager.run(self._run(), note_end)

    async def _run(self) -> None:
        self._is_running, count = True, 0
        slices = Slices(self._world.clock)
        try:
            while self._owed:
                self._carry_out(self._owed.popleft())
                count += 1
                if count % LOOK_EVERY == 0:
                    await slices.next()
        finally:
            self._is_running = False

    def close(self) -> None:
        """Carries out nothing more."""
        self._is_closed = True
        self._owed.clear()


def note_end(_: None, error: BaseException | None) -> None:
    """Logs the error with which something that a shard does by itself has ended."""
    if error is not None and not isinstance(error, asyncio.CancelledError):  # cancelled: the node has stopped
        log.error("shard_failed", exc_info=error)
