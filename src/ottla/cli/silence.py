"""The silence after which a consumer ends: `--timeout`."""

from __future__ import annotations

import time
from collections.abc import Callable


class Silence:
    """The time in which no record came; None for no limit."""

    def __init__(self, seconds_max: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds_max = seconds_max
        self._clock = clock
        self._since: float | None = clock()

    def wait(self) -> None:
        """Does not count yet: a group has yet to assign partitions, which may take seconds."""
        self._since = None

    def begin(self) -> None:
        """Counts from now."""
        self._since = self._clock()

    def is_over(self, *, came: int) -> bool:
        """Notes how many records came just now; True when none has for too long."""
        now = self._clock()
        if came:
            self._since = now
        return self._seconds_max is not None and self._since is not None and now - self._since >= self._seconds_max
