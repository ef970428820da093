"""Connections to other nodes: made when first needed, and again after they ended.

A node that stays silent for too long has its connection closed, so that the caller learns of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.connection import Older, OnAnswer, PeerConnection
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.loggers import get_logger
from ottla.ports import TimerHandle, World
from ottla.wire.frame_memory import FrameMemory
from ottla.wire.schema import Request, Response

log = get_logger(__name__)

SWEEP_MS: Final = 250

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SetUp:
    """The time limits of connecting: ``first_ms`` at first, twice as long after each attempt that failed, ``ms_max`` at most."""

    first_ms: int = 10_000
    ms_max: int = 30_000
    receive_buffer_bytes: int = -1

    @classmethod
    def of(cls, config: BrokerConfig, *, receive_buffer_bytes: int = -1) -> SetUp:
        first_ms, ms_max = config["socket.connection.setup.timeout.ms"], config["socket.connection.setup.timeout.max.ms"]
        return cls(first_ms, ms_max, receive_buffer_bytes)

    def ms(self, failures: int) -> int:
        return min(self.first_ms << min(failures, 20), max(self.first_ms, self.ms_max))


class Peers:
    """The connections to other nodes, by address: several nodes never share one.

    ``silence_ms_max`` is how long an answer may take; ``memory`` is for large answers.
    """

    def __init__(
        self, world: World, name: CallerName, *, silence_ms_max: int, memory: FrameMemory | None = None, set_up: SetUp | None = None
    ) -> None:
        self._world = world
        self._name = name
        self._silence_ms_max = silence_ms_max
        self._memory = memory
        self._set_up = SetUp() if set_up is None else set_up
        self._failures: dict[Address, int] = {}  # to connect, one after the other
        self._troubles: dict[Address, str] = {}  # of the last attempt to connect
        self._connections: dict[Address, PeerConnection] = {}
        self._retired: dict[PeerConnection, Address] = {}  # their sessions are about to end: they wait for answers, and are asked nothing
        self._sweep_timer: TimerHandle | None = None
        self._is_closed = False

    def send(self, address: Address, request: Request, on_answer: OnAnswer, older: Older | None = None) -> None:
        """Sends the request. The answer, or None, comes by callback: never before this returns unless the connection is known closed."""
        if self._is_closed:
            on_answer(None)
            return
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connect(address)
        connection.send(request, on_answer, self._world.clock.monotonic_ms(), older)

    async def ask(self, address: Address, request: Request) -> Response | None:
        """Sends the request and returns the answer; None when there will be none."""
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self.send(address, request, lambda answer: None if future.done() else future.set_result(answer))
        return await future

    def is_connected(self, address: Address) -> bool:
        """True when there is a connection to the node that has not ended."""
        return address in self._connections or address in self._retired.values()

    def trouble(self, address: Address) -> str | None:
        """Returns what the node's address did when the last connection was tried; None where it was made, or none was."""
        return self._troubles.get(address)

    def probe(self, address: Address) -> None:
        """Probes the connection to the node, if there is one: it ends when the node's machine has restarted since."""
        for connection in self._with(address):
            connection.probe()

    def drop(self, address: Address) -> None:
        """Ends the connections to the node, if there are some: nothing that was asked on them is answered."""
        for connection in self._with(address):
            connection.close()

    def _with(self, address: Address) -> list[PeerConnection]:
        newest = self._connections.get(address)
        retired = [connection for connection, to in self._retired.items() if to == address]
        return retired if newest is None else [*retired, newest]

    def _connect(self, address: Address) -> PeerConnection:
        connection = PeerConnection(
            self._name,
            lambda: self._ended(address, connection),
            self._memory,
            on_retire=lambda: self._on_retired(address, connection),
        )
        self._connections[address] = connection
        eager.run(self._open(address, connection), lambda _, error: self._opened(address, connection, error))
        if self._sweep_timer is None:
            self._sweep_timer = self._world.timers.call_later_ms(SWEEP_MS, self._sweep)
        return connection

    async def _open(self, address: Address, connection: PeerConnection) -> None:
        await asyncio.sleep(0)  # callbacks never come before the caller has returned
        failures = self._failures.get(address, 0)
        self._failures[address] = failures + 1
        async with asyncio.timeout(min(self._silence_ms_max, self._set_up.ms(failures)) / 1000):
            transport = await self._world.network.connect(
                *address,
                lambda transport: connection.on_open(transport, self._world.clock.monotonic_ms()),
                receive_buffer_bytes=self._set_up.receive_buffer_bytes,
            )
        self._failures.pop(address, None)
        self._troubles.pop(address, None)
        if connection.is_closed:
            transport.abort()

    def _opened(self, address: Address, connection: PeerConnection, error: BaseException | None) -> None:
        if error is not None:
            self._troubles[address] = _said(error)
        _opened(connection, error)

    def _ended(self, address: Address, connection: PeerConnection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
        self._retired.pop(connection, None)

    def _on_retired(self, address: Address, connection: PeerConnection) -> None:
        self._ended(address, connection)
        self._retired[connection] = address

    def _sweep(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        for connection in [*self._retired, *self._connections.values()]:
            oldest_ms = connection.oldest_ms
            if oldest_ms is not None and now_ms - oldest_ms > self._silence_ms_max:
                connection.close()
        has_connections = bool(self._connections or self._retired) and not self._is_closed
        self._sweep_timer = self._world.timers.call_later_ms(SWEEP_MS, self._sweep) if has_connections else None

    def close(self) -> None:
        """Ends every connection, and makes no other one."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in [*self._retired, *self._connections.values()]:
            connection.close()


def _opened(connection: PeerConnection, error: BaseException | None) -> None:
    if error is not None:
        if not isinstance(error, OSError | asyncio.CancelledError):  # TimeoutError is one; cancelled: the node stops
            log.error("peer_connection_failed", exc_info=error)
        connection.close()


def _said(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    return "does not take connections" if isinstance(error, TimeoutError) else f"cannot be reached: {error}"
