"""Whether the process behind an address lives: answered, proved dead, or not known.

Its port is tried at growing intervals, for 320 ms in all. *Answered*: ApiVersions is. *Dead*: refused twice, 5 ms apart or more, with no
connection accepted in between; for some milliseconds after a process has ended its port still accepts. Everything else, above all
silence, proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.connection import PeerConnection
from ottla.loggers import get_logger
from ottla.ports import World

log = get_logger(__name__)

PAUSES_MS: Final = (0, 5, 10, 20, 40, 80, 160)
REFUSED_MS_MIN: Final = 5
"""How far two refusals are apart at least."""

Address = tuple[str, int]


class Proof(Enum):
    ALIVE = "alive"
    DEAD = "dead"
    NONE = "none"


class Probe:
    """One address, tried once. A connection that was answered is kept open, for the caller: ``connection``."""

    def __init__(
        self,
        world: World,
        address: Address,
        name: CallerName,
        *,
        is_heard: Callable[[], bool] = lambda: False,
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes a probe; ``is_heard`` says whether the process is known to live by other means: then refusals prove nothing.

        ``on_ended`` is called at once when ``connection`` has ended.
        """
        self._world = world
        self._address = address
        self._name = name
        self._is_heard = is_heard
        self.ended = asyncio.Event()
        """Set once ``connection`` has ended."""
        self._on_ended = on_ended
        self.connection: PeerConnection | None = None

    async def run(self) -> Proof:
        """Returns what was found out."""
        try:
            async with asyncio.timeout(sum(PAUSES_MS) / 1000):
                return await self._try_often()
        except TimeoutError:
            self.close()
            return Proof.NONE
        except BaseException:
            self.close()
            raise

    async def _try_often(self) -> Proof:
        first_refused_ms: int | None = None
        for pause_ms in PAUSES_MS:
            await asyncio.sleep(pause_ms / 1000)
            try:
                if await self._is_answered():
                    return Proof.ALIVE
            except ConnectionRefusedError:
                now_ms = self._world.clock.monotonic_ms()
                if first_refused_ms is None:
                    first_refused_ms = now_ms
                elif now_ms - first_refused_ms >= REFUSED_MS_MIN and not self._is_heard():
                    return Proof.DEAD
            except OSError as error:  # unreachable, out of descriptors, accepted and reset
                log.debug("probe_failed", address=self._address, reason=str(error))
                first_refused_ms = None
            else:
                first_refused_ms = None
        return Proof.NONE

    async def _is_answered(self) -> bool:
        """Returns whether it was answered. OSError when no connection could be made; False when it ended before."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        self.ended = ended = asyncio.Event()

        def on_end() -> None:
            ended.set()
            self._on_ended()

        self.connection = connection = PeerConnection(self._name, on_end)
        clock = self._world.clock
        try:
            await self._world.network.connect(*self._address, lambda transport: connection.on_open(transport, clock.monotonic_ms()))
        except OSError:
            self.connection = None
            raise
        connection.send(
            self._name.hello(), lambda found: None if answer.done() else answer.set_result(found is not None), clock.monotonic_ms()
        )
        is_answered = await answer
        if not is_answered:
            self.close()
        return is_answered

    def ping(self) -> None:
        """Asks once more on the connection, which ends if the other end is lost. Nothing is concluded from the answer."""
        if self.connection is not None:
            self.connection.send(self._name.hello(), lambda answer: None, self._world.clock.monotonic_ms())

    def close(self) -> None:
        """Closes all that is open."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
