"""The signals that end a process in order."""

from __future__ import annotations

import signal
from typing import Final

ONE_STOP_S: Final = 1
"""Signals so close to the first one are the same stop: ``timeout`` sends one to its command, and one to the command's process group;
a terminal that closes sends one, and so does its shell."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns SIGINT, SIGTERM and SIGHUP, which a terminal sends that closes; without SIGHUP where it is ignored, as nohup has it."""
    asked = (signal.SIGINT, signal.SIGTERM)
    return asked if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*asked, signal.SIGHUP)
