"""The event loop of a broker: asyncio's own, whose turns are measured.

A turn is what the loop does between two waits for something to do: while it lasts, no other connection is served. It is measured in
processor time of the loop's thread, so that a busy machine does not look like a long request.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any


class TurnMeter(selectors.DefaultSelector):
    """The loop's selector, which knows when a turn starts and ends."""

    longest_ns = 0
    ready_count = 0
    """So many sockets have something for the present turn."""
    _began_ns = -1

    def select(self, timeout: float | None = None) -> list[Any]:
        now_ns = time.thread_time_ns()
        if self._began_ns >= 0 and now_ns - self._began_ns > self.longest_ns:
            self.longest_ns = now_ns - self._began_ns
        events = super().select(timeout)
        self._began_ns = time.thread_time_ns()
        self.ready_count = len(events)
        return events


class MeasuredLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.turns = TurnMeter()
        super().__init__(self.turns)


def ready_count(loop: asyncio.AbstractEventLoop) -> int:
    """Returns how many sockets have something for the loop's present turn; 0 when it is not measured."""
    return loop.turns.ready_count if isinstance(loop, MeasuredLoop) else 0


def take_longest_turn_seconds() -> float:
    """Returns the longest turn of the running loop since the last call; 0 when it is not measured. The asking turn counts next time."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, MeasuredLoop):
        return 0.0
    longest_ns, loop.turns.longest_ns = loop.turns.longest_ns, 0
    return longest_ns / 1e9
