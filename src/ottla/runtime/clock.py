"""Real time, and timers on the running event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000


class LoopTimers:
    """``call_later`` of the running loop; an ``asyncio.TimerHandle`` is the handle."""

    def call_later_ms(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0, delay_ms) / 1000, callback)
