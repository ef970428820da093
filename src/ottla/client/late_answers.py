"""Requests that a broker leaves unanswered while another one has its place.

A broker that hangs loses what it leads and coordinates when its session ends, and a request to it would wait for request_timeout_ms: three
times as long. The other brokers are asked meanwhile. Once they name another one, the connection is given up, and the request fails as it
does at the end of its time: what may be sent again is sent there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.client.background import background
from ottla.client.connection import ClientConnection
from ottla.errors import KafkaError
from ottla.ports import TimerHandle, World

LATE_MS: Final = 5_000
"""An answer that has not come by then is late. Brokers answer most requests within milliseconds, and some when others have."""
AGAIN_MS: Final = 2_000
"""From then on the others are asked so often."""


@contextmanager
def given_up_for_another(world: World, connection: ClientConnection, has_another: Callable[[], Awaitable[bool]]) -> Iterator[None]:
    """Ends the connection when the block, which asks on it, lasts for LATE_MS and ``has_another`` says that another broker is to be asked.

    That is asked every AGAIN_MS from then on, of brokers that do answer.
    """
    late = _Late(world, connection, has_another)
    try:
        yield
    finally:
        late.end()


class _Late:
    __slots__ = ("_connection", "_has_another", "_looking", "_timer", "_world")

    def __init__(self, world: World, connection: ClientConnection, has_another: Callable[[], Awaitable[bool]]) -> None:
        self._world = world
        self._connection = connection
        self._has_another = has_another
        self._looking: asyncio.Task[None] | None = None
        self._timer: TimerHandle = world.timers.call_later_ms(LATE_MS, self._due)

    def _due(self) -> None:
        self._connection.suspect()
        self._looking = background(self._look())

    async def _look(self) -> None:
        try:
            has_another = await self._has_another()
        except KafkaError as error:
            if not error.is_transient:  # no other can be asked: the request has the rest of its time
                return
            has_another = False
        if has_another:
            self._connection.give_up()
        else:
            self._timer = self._world.timers.call_later_ms(AGAIN_MS, self._due)

    def end(self) -> None:
        """Ends the watch: the request was answered, or has failed."""
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
