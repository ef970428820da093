"""A line on standard error where a command makes no progress, and goes on waiting: a silent command looks like one that hangs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from ottla.cli.output import complain

SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.5


class Stall:
    """``describe`` says what is waited for: once, after ``SECONDS`` without progress, and again when there has been some since."""

    def __init__(self, describe: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._describe = describe
        self._clock = clock
        self._seen: Hashable = None
        self._since: float | None = None

    def look(self, progress: Hashable) -> None:
        """Notes how far the command is, which is any value that changes with progress; None while it waits for nothing."""
        now = self._clock()
        if progress is None or progress != self._seen:
            self._seen, self._since = progress, now
        elif self._since is not None and now - self._since >= SECONDS:
            self._since = None
            complain(f"waiting: {self._describe()}")


@contextlib.contextmanager
def said_stall(stall: Stall, progress: Callable[[], Hashable]) -> Iterator[None]:
    """Looks from a thread of its own, for a command whose own thread is in a call that waits."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            stall.look(progress())

    thread = threading.Thread(target=watch, name="ottla-stall", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
