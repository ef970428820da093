"""What a node waits for, said in its log: after two seconds, and every ten seconds for as long as that lasts.

A node waits when it starts, for ZooKeeper, for a majority of the controllers, to be registered and unfenced; and later, when one of
these is lost. Nothing follows from it here: the log alone says why a node does not serve, or cannot change anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.part import Part
from ottla.loggers import get_logger
from ottla.ports import TimerHandle, World

log = get_logger(__name__)

FIRST_MS: Final = 2_000
AGAIN_MS: Final = 10_000
LOOK_MS: Final = 1_000


class Waits(Part):
    """The log of one node's waits. ``what`` returns what it waits for; None while it waits for nothing."""

    def __init__(self, world: World, what: Callable[[], str | None]) -> None:
        self._clock = world.clock
        self._timers = world.timers
        self._timer: TimerHandle | None = None
        self._what = what
        self._since_ms = self._clock.monotonic_ms()
        self._logged_ms = -1
        self._again()

    def turn_to(self, what: Callable[[], str | None]) -> None:
        """Replaces the source of what is waited for."""
        self._what = what

    @property
    def awaited(self) -> str | None:
        """What the node waits for; None while it waits for nothing."""
        return self._what()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        self._timer = self._timers.call_later_ms(LOOK_MS, self._look)

    def _look(self) -> None:
        self._again()
        what, now_ms = self._what(), self._clock.monotonic_ms()
        if what is None:
            if self._logged_ms >= 0:
                log.info("node_waits_no_longer", seconds=(now_ms - self._since_ms) // 1000)
            self._since_ms = self._logged_ms = -1
        elif self._since_ms < 0:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= FIRST_MS and (self._logged_ms < 0 or now_ms - self._logged_ms >= AGAIN_MS):
            self._logged_ms = now_ms
            log.warning("node_waits", waits_for=what, seconds=(now_ms - self._since_ms) // 1000)
