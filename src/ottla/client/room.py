"""The bytes that records take from ``send`` on until they are acknowledged or have failed; and who waits for some of them."""

from __future__ import annotations

import asyncio

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock


class Room:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[asyncio.Future[None]] = []
        self.used_bytes = 0

    async def wait(self, limit: int, deadline_ms: int) -> None:
        """Waits until fewer than ``limit`` bytes are used. REQUEST_TIMED_OUT at the deadline."""
        while self.used_bytes >= limit:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                async with asyncio.timeout(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000):
                    await future
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the buffer of {limit} bytes remained full") from None

    def give_back(self, size_bytes: int) -> None:
        """Frees so many bytes; all that wait look again."""
        self.used_bytes -= size_bytes
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
