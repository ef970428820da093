"""What one process has once, where several run on one loop: the simulation runs all of a cluster's processes on one.

A real process has one loop, and its state hangs on that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary


class ProcessState:
    """Work that no other object of the process keeps."""

    __slots__ = ("__weakref__", "paused", "running")

    def __init__(self) -> None:
        self.paused: deque[asyncio.Future[None]] = deque()  # slices.py
        self.running: set[asyncio.Task[Any]] = set()  # eager.py


PROCESS_STATE: Final[ContextVar[ProcessState | None]] = ContextVar("process_state", default=None)
"""Set for all that a process does that shares its loop with others."""

_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, ProcessState] = WeakKeyDictionary()


def process_state() -> ProcessState:
    """Returns the state of the process that this code is part of."""
    state = PROCESS_STATE.get()
    return state if state is not None else _by_loop.setdefault(asyncio.get_running_loop(), ProcessState())
