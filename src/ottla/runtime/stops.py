"""The signals that end a process in order."""

from __future__ import annotations

import signal
import time
from typing import Final

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ONE_STOP_S: Final = 1
"""Signals so close to the first one are the same stop: ``timeout`` sends one to its command, and one to the command's process group;
a terminal that closes sends one, and so does its shell."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns SIGINT, SIGTERM and SIGHUP, which a terminal sends that closes, without what this process ignores.

    nohup has SIGHUP ignored, and a shell SIGINT by what it starts in the background of a script.
    """
    return tuple(number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN)


def pass_over_same_stop() -> None:
    """Lets a signal to stop that comes within ``ONE_STOP_S`` from now on do nothing; a later one ends the process at once.

    For a process that has stopped, and is about to end. On the main thread.
    """
    stopped_s = time.monotonic()

    def on_stop(number: int, _frame: object) -> None:
        if time.monotonic() - stopped_s >= ONE_STOP_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in stop_signals():
        signal.signal(number, on_stop)
