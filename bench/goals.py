"""What ottla is held to, beside Apache Kafka in the same run: ratios, and here and there a bound of its own."""

from __future__ import annotations

from typing import Final, NamedTuple


class Goal(NamedTuple):
    """Of ours to theirs: at least ``low`` or at most ``high``; ``own_high`` bounds our own figure besides."""

    low: float | None = None
    high: float | None = None
    own_high: float | None = None

    def is_met(self, ratio: float, own: float) -> bool:
        return (
            (self.low is None or ratio >= self.low)
            and (self.high is None or ratio <= self.high)
            and (self.own_high is None or own <= self.own_high)
        )

    def __str__(self) -> str:
        text = f">= {self.low:g}" if self.low is not None else f"<= {self.high:.3g}"
        return text if self.own_high is None else f"{text}, own <= {self.own_high:g}"


GOALS: Final = {
    "one-record requests/s, 1 connection": Goal(low=6),
    "one-record requests/s, 4 connections": Goal(low=2.5),
    "16 KiB batches MB/s, 1 connection": Goal(low=4),
    "16 KiB batches MB/s, 4 connections": Goal(low=3),
    "1 MiB batches MB/s": Goal(low=1.3),
    "cached fetch MB/s, 1 MiB": Goal(low=1.2),
    "cached fetch MB/s, 100 partitions x 4 KiB": Goal(low=1.0),
    "produce round trip p50, ms": Goal(high=0.7),
    "produce round trip p99, ms": Goal(high=0.7),
    "end to end p50, ms": Goal(high=0.7),
    "end to end p99, ms": Goal(high=0.7),
    "start to first acknowledgement, ms": Goal(high=1 / 12, own_high=300),
    "first record of a first group, ms": Goal(high=1 / 5),
    "RSS at rest, MB": Goal(high=1 / 8, own_high=60),
    "RSS peak, MB": Goal(high=1 / 6),
    "CPU us per one-record request": Goal(high=0.25),
    "CPU s/GB, 16 KiB batches": Goal(high=0.35),
    "CPU s/GB, 1 MiB batches": Goal(high=0.5),
    "CPU s/GB, fetch": Goal(high=1.0),
}
