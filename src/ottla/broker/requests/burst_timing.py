"""How long the burst takes that is being worked on, and the time of the requests that it answers.

A burst may have a part of the loop that depends on how many connections there are. What it answers was answered in the same time: one
look at the clock for all of them.
"""

from __future__ import annotations

from typing import Final

from ottla.metrics import RequestMeters
from ottla.ports import Clock

ROUND_US: Final = 50_000
"""So long is a round in which every connection has a burst of full length."""
BURST_US_MAX: Final = 5_000
BURST_US_MIN: Final = 100


class BurstTiming:
    """The timing of one loop's bursts: there is one burst at a time."""

    __slots__ = ("_answered", "_burst_us_max", "_clock", "began_us", "is_long")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._burst_us_max = BURST_US_MAX
        self._answered: list[RequestMeters] = []  # those with answers in this burst
        self.began_us = 0  # 0 between bursts
        self.is_long = False
        """The burst has had its share of the loop."""

    def share_among(self, connection_count: int) -> None:
        """Shares the loop among so many connections from the next burst on."""
        self._burst_us_max = min(BURST_US_MAX, max(BURST_US_MIN, ROUND_US // max(1, connection_count)))

    def begin(self) -> int:
        """Starts a burst; returns its time in milliseconds."""
        began_us = self.began_us = self._clock.monotonic_us()
        self.is_long = False
        return began_us // 1000

    def look_at_clock(self) -> None:
        """Sets ``is_long`` by the clock, after something that may have taken long."""
        self.is_long = self._clock.monotonic_us() - self.began_us > self._burst_us_max

    def now_us(self) -> int:
        return self._clock.monotonic_us()

    def answered(self, meters: RequestMeters, began_us: int) -> None:
        """Notes that an answer is ready to a request of the burst that started then."""
        if began_us != self.began_us:
            meters.timer.observe(self._clock.monotonic_us() - began_us)
            return
        if not meters.pending:
            self._answered.append(meters)
        meters.pending += 1

    def close(self) -> None:
        """Ends the burst: everything that it could answer has left."""
        took_us = self._clock.monotonic_us() - self.began_us
        self.began_us = 0
        for meters in self._answered:
            meters.timer.observe(took_us, meters.pending)
            meters.pending = 0
        self._answered.clear()
