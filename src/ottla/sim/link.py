"""What one host sends to another: after a delay it arrives, or it is held while nothing gets through.

Nothing is lost on a link: TCP sends again what was not acknowledged, so that it arrives once the link works again. Until then the
sender sees silence, and not an error.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from typing import Final, cast

from ottla.sim.loop import SimLoop

RETRANSMIT_MS_MAX: Final = 200.0
"""So long after a link works again that which it held arrives."""
BUFFER_BYTES: Final = (1024, 8 * 1024, 64 * 1024)
"""Of a kernel, for one connection: one of these."""
COLD_SHARE: Final = 0.01
COLD_MS_MAX: Final = 50.0

_WIRE: Final = Context()
"""No process: what is on the wire arrives whatever becomes of its sender."""


class Host:
    """``is_off``: without power. ``is_dark``: up, and cut off from all others."""

    def __init__(self) -> None:
        self.is_off = False
        self.is_dark = False


class Link:
    """One direction."""

    def __init__(self, rng: random.Random, source: Host, target: Host, *, delay_ms_max: float) -> None:
        self._rng = rng
        self._source = source
        self._target = target
        self._delay_ms_max = delay_ms_max
        self._loop = cast(SimLoop, asyncio.get_running_loop())
        self._held: list[Callable[[], None]] = []
        self._clogged_until = 0.0  # seconds of the world
        self.slow_ms = 0.0
        self.is_cut = False
        self.is_refused = False  # the target's firewall rejects what the source sends to its listeners

    @property
    def is_blocked(self) -> bool:
        return self.is_cut or self._source.is_dark or self._target.is_dark or self._target.is_off

    def buffer_bytes(self) -> int:
        """Draws how much of a connection the source's kernel buffers before the target acknowledges it."""
        return self._rng.choice(BUFFER_BYTES)

    def cold_ms(self) -> float:
        """Draws how long the source takes to read a region before it sends it: 0 where the page cache has it, as nearly always."""
        return self._rng.random() * COLD_MS_MAX if self._rng.random() < COLD_SHARE else 0.0

    def later(self, delay_ms: float, then: Callable[[], None]) -> None:
        """Calls ``then`` later, from no process."""
        self._loop.at(self._loop.now + delay_ms / 1000, then, context=_WIRE)

    def cut(self, data: bytes, size_max: int) -> list[bytes]:
        """Cuts the data into chunks of arbitrary size."""
        chunks = []
        while data:
            size = min(len(data), 1 + self._rng.randrange(size_max))
            chunks.append(data[:size])
            data = data[size:]
        return chunks

    def carry(self, arrive: Callable[[], None], *, after_ms: float = 0.0) -> None:
        """Calls ``arrive`` once the link has let it through."""
        delay_ms = after_ms + self.slow_ms + self._rng.random() * self._delay_ms_max
        self._loop.at(self._loop.now + delay_ms / 1000, self._arrive, arrive, context=_WIRE)

    def _arrive(self, arrive: Callable[[], None]) -> None:
        if self.is_blocked:
            self._held.append(arrive)
        elif (left := self._clogged_until - self._loop.now) > 0:
            self.carry(arrive, after_ms=left * 1000)
        else:
            arrive()

    def clog(self, ms: float) -> None:
        """Delays what would arrive within this time to its end."""
        self._clogged_until = self._loop.now + ms / 1000

    def mend(self) -> None:
        """Removes all faults from the link."""
        self.is_cut = self.is_refused = False
        self.slow_ms = self._clogged_until = 0.0
        self.release()

    def release(self) -> None:
        """Resends what was held."""
        held, self._held = self._held, []
        for arrive in held:
            self.carry(arrive, after_ms=self._rng.random() * RETRANSMIT_MS_MAX)
