"""The clocks of one simulated machine: both follow the loop's time, neither need agree with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

EPOCH_MS: Final = 1_700_000_000_000
"""Virtual time starts here on every wall clock that has not been set."""


class TimeKeeper(Protocol):
    """The loop, as the clocks know it."""

    now: float


def world_seconds() -> float:
    """Returns the time that has passed since the simulation started, which is no machine's own."""
    return cast(TimeKeeper, asyncio.get_running_loop()).now


class SimClock:
    """``step_ms`` moves the wall clock, as administrators and time servers do; ``drift`` lets both clocks run fast or slow.

    Code takes no time, unless ``worked_us`` says how long it has worked whenever it looks at the microseconds. Without that long work,
    which looks there whether to pause, never pauses.
    """

    def __init__(self) -> None:
        self.step_ms = 0
        self.worked_us: Callable[[], int] | None = None
        self.rate = 1.0  # seconds of this clock in a second of the world
        self._shift = 0.0

    def drift(self, rate: float) -> None:
        """Changes the rate: ``rate`` seconds pass here while one passes in the world. Timers that are set keep their moment."""
        self._shift += world_seconds() * (self.rate - rate)
        self.rate = rate

    def local(self, seconds: float) -> float:
        """Returns what this clock shows at a time of the world."""
        return seconds * self.rate + self._shift

    def real(self, seconds: float) -> float:
        """Returns the time of the world at which this clock shows that time."""
        return (seconds - self._shift) / self.rate

    def now_ms(self) -> int:
        return EPOCH_MS + self.step_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self.local(world_seconds()) * 1000)

    def monotonic_us(self) -> int:
        if self.worked_us is not None:
            cast(TimeKeeper, asyncio.get_running_loop()).now += self.worked_us() / 1_000_000
        return int(self.local(world_seconds()) * 1_000_000)
