"""The producer's ``buffer.memory``: the bytes that records take from ``send`` until they are acknowledged or have failed."""

from __future__ import annotations

import asyncio

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock


class BufferMemory:
    """A count of the bytes in use, and the senders that wait for some to be freed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._freed = asyncio.Event()
        self.used_bytes = 0

    async def wait(self, limit: int, deadline_ms: int) -> None:
        """Waits until fewer than ``limit`` bytes are used. REQUEST_TIMED_OUT at the deadline."""
        while self.used_bytes >= limit:
            try:
                async with asyncio.timeout(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000):
                    await self._freed.wait()
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the buffer of {limit} bytes remained full") from None

    def give_back(self, size_bytes: int) -> None:
        """Frees so many bytes; all that wait look again."""
        self.used_bytes -= size_bytes
        self._freed.set()
        self._freed.clear()  # who waits from now on waits for the next time
