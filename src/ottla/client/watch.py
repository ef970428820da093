"""Whether any broker can be reached, for applications that want to say so.

The client sends requests again while no broker answers; without a watch no application would see it. The watch looks twice a second,
and reconnects while nothing is to be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.errors import KafkaError

WATCH_MS: Final = 500
OnConnectivity = Callable[[KafkaError | None], object]
"""Called with why when no broker can be reached any more, and with None when one can again."""


async def watch(reach: Callable[[], Awaitable[object]], on_connectivity: OnConnectivity) -> None:
    """Runs until it is cancelled. ``reach`` raises when it reaches no broker; that one is reached is taken for granted at first."""
    is_reachable = True
    while True:
        try:
            await reach()
        except KafkaError as error:
            if is_reachable:
                on_connectivity(error)
            is_reachable = False
        else:
            if not is_reachable:
                on_connectivity(None)
            is_reachable = True
        await asyncio.sleep(WATCH_MS / 1000)
