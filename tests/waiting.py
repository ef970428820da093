"""Waiting for what a process or a cluster comes to: by asking again, up to a time limit, and never by hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

WAIT_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.02
T = TypeVar("T")


def eventually(ask: Callable[[], T], is_wanted: Callable[[T], bool]) -> T:
    """The first answer that is wanted; AssertionError with the last one when there is none in time."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_wanted(found := ask()):
        assert time.monotonic() < deadline, found
        time.sleep(PAUSE_SECONDS)
    return found


async def eventually_is(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    """On the event loop of the test. AssertionError with the last answer when it is never the wanted one."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (found := await ask()) != wanted:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(PAUSE_SECONDS)
