"""Clients that are turned away, which may come by the thousand each second: which of them the log has a line for.

Of one address each event has ``LINES_MAX`` lines in a minute, and all addresses together ``LINES_OF_ALL_MAX``. The others are counted, and
the counts are logged with the first one that comes in a later minute.
"""

from __future__ import annotations

import heapq
from typing import Final

from ottla.loggers import get_logger
from ottla.ports import Clock

log = get_logger(__name__)

LINES_MAX: Final = 60
LINES_OF_ALL_MAX: Final = 1_000
WINDOW_MS: Final = 60_000
ADDRESSES_MAX: Final = 10_000
COUNTS_MAX: Final = 20
"""Addresses whose counts are logged one by one, of a minute."""
_Key = tuple[str, str]
OTHERS: Final = "others"


class Refusals:
    """The clients that one node has turned away in this minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_ms = 0
        self._told: dict[_Key, int] = {}  # lines, by event and address
        self._told_count = 0
        self._untold: dict[_Key, int] = {}

    def take(self, event: str, address: str) -> bool:
        """Returns whether this one has a line in the log; counts it otherwise."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._window_ms >= WINDOW_MS:
            self._window_ms = now_ms
            self._told.clear()
            self._told_count = 0
            self._tell_rest()
        key = event, address
        lines = self._told.get(key, 0)
        if lines < LINES_MAX and self._told_count < LINES_OF_ALL_MAX:
            self._told[key] = lines + 1
            self._told_count += 1
            return True
        if key not in self._untold and len(self._untold) >= ADDRESSES_MAX:
            key = event, OTHERS
        self._untold[key] = self._untold.get(key, 0) + 1
        return False

    def _tell_rest(self) -> None:
        untold, self._untold = self._untold, {}
        shown = heapq.nlargest(COUNTS_MAX, untold.items(), key=lambda item: item[1])
        for (event, address), count in shown:
            log.info("refusals_not_logged", of=event, peer=address, count=count)
        rest = sum(untold.values()) - sum(count for _, count in shown)
        if rest:
            log.info("refusals_not_logged", of="all", peer=OTHERS, count=rest)
