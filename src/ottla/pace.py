"""The rate of a job (``ports.Pace``): a token bucket over the caller's clock, or no limit at all."""

from __future__ import annotations

BURST_SECONDS = 0.3
"""So much work may be done at once, as Kafka's cleaner does; shorter waits would only wake the process more often."""


class Throttle:
    """A limit of ``bytes_per_second`` in the long run, with bursts of ``BURST_SECONDS`` at any time."""

    __slots__ = ("_bytes_per_second", "_free_at_ms")

    def __init__(self, bytes_per_second: float, now_ms: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = now_ms - BURST_SECONDS * 1000  # when all that was done would have been done at the rate

    def delay_ms(self, size: int, now_ms: float) -> float:
        """Counts ``size`` more bytes; returns milliseconds to wait before more of them, 0 within the burst."""
        earliest = now_ms - BURST_SECONDS * 1000
        self._free_at_ms = max(self._free_at_ms, earliest) + size / self._bytes_per_second * 1000
        return max(0.0, self._free_at_ms - now_ms)


async def no_pace(size: int) -> None:
    """Makes no pauses: for what is short, or what nothing else waits for."""
