"""How a command ends by a Ctrl-C, a SIGTERM or the SIGHUP of a terminal that closes.

Pipelines end by it between calls to a JVM, and never inside of one:
py4j cannot go on with a call that was broken off, and PySpark's own handler makes another call within it: both end as tracebacks. What
waits for others than the JVM, such as a schema registry or brokers that are away, is broken off.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from ottla.runtime.stops import ONE_STOP_S, stop_signals


class Pauses(NamedTuple):
    """The pauses of a command that a Ctrl-C, a SIGTERM or a SIGHUP breaks off; one that came before does so at their start."""

    pause: Callable[[float], None]  # of so many seconds
    breakable: Callable[[], AbstractContextManager[None]]  # a block of the main thread that makes no call to a JVM


@contextmanager
def ctrl_c_in_pauses() -> Iterator[Pauses]:
    """Yields the pauses in which alone one of these signals is a KeyboardInterrupt; a later one is one everywhere.

    Within the block, on the main thread. PySpark has its own handler from the start of a session on: this one is installed after that.
    """
    is_pausing = False
    first_s: float | None = None

    def on_ctrl_c(_number: int, _frame: object) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if first_s is None:
            first_s = now_s
            is_stop = is_pausing
        else:
            is_stop = now_s - first_s >= ONE_STOP_S
        if is_stop:
            raise KeyboardInterrupt

    @contextmanager
    def breakable() -> Iterator[None]:
        nonlocal is_pausing
        earlier, is_pausing = is_pausing, True
        try:
            if first_s is not None:
                raise KeyboardInterrupt
            yield
        finally:
            is_pausing = earlier

    def pause(seconds: float) -> None:
        with breakable():
            time.sleep(seconds)

    earlier = {number: signal.signal(number, on_ctrl_c) for number in stop_signals()}
    try:
        yield Pauses(pause, breakable)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Turns a SIGTERM or a SIGHUP within into a KeyboardInterrupt, so that what is open is closed.

    One that comes later ends the process at once.
    """
    first_s: float | None = None

    def on_stop(number: int, _frame: object) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if first_s is None:
            first_s = now_s
            raise KeyboardInterrupt
        if now_s - first_s >= ONE_STOP_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    earlier = {number: signal.signal(number, on_stop) for number in stop_signals() if number is not signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
