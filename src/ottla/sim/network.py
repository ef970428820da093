"""Streams between named hosts, in memory.

Bytes arrive in order, after a delay, cut at arbitrary places. A host that crashes resets its connections or, as a machine
without power does, falls silent. A cut link delivers nothing in one direction or both until it is healed; what was sent
meanwhile arrives then, as retransmission would see to.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ottla.ports import BACKLOG, Buffer, Connection, ConnectionHandler, FileRegion
from ottla.sim.disk import PowerCut
from ottla.sim.trace import Trace

CHUNK_BYTES_MAX: Final = 8192
SEND_QUEUE_BYTES_MAX: Final = 64 * 1024
EPHEMERAL_PORT: Final = 40_000
ORDER_MS: Final = 0.001


class SimConnection:
    """One end of a stream."""

    def __init__(self, fabric: Fabric, host: str, local: tuple[str, int], peer: tuple[str, int]) -> None:
        self._fabric = fabric
        self.host = host
        self.local = local
        self.peer = peer
        self.other: SimConnection
        self.handler: ConnectionHandler | None = None
        self._incoming: deque[bytes] = deque()  # arrived, and not yet read
        self._on_the_way = 0  # bytes sent and not yet arrived
        self._is_reading = True
        self._was_crowded = False
        self._arrives_ms = 0.0  # of the last chunk sent: order is kept
        self.is_closed = False

    def start(self, handler: ConnectionHandler) -> None:
        """What has arrived meanwhile is read, unless the handler does not want to."""
        self.handler = handler
        if self._incoming:
            asyncio.get_running_loop().call_soon(self._read)

    @property
    def unsent_bytes(self) -> int:
        return self._on_the_way

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self.is_closed:
            return
        data = b"".join(bytes(item) if isinstance(item, (bytes, bytearray, memoryview)) else item.read() for item in buffers)
        self._on_the_way += len(data)
        self._was_crowded = self._was_crowded or self._on_the_way > SEND_QUEUE_BYTES_MAX
        for chunk in self._fabric.cut(data):
            self._fabric.deliver(self, chunk)

    def arrive(self, chunk: bytes) -> None:
        """Called on the receiving end."""
        self.other.sent(len(chunk))
        if not self.is_closed:
            self._incoming.append(chunk)
            self._read()

    def sent(self, size: int) -> None:
        self._on_the_way -= size
        if self._was_crowded and self._on_the_way == 0 and not self.is_closed and self.handler is not None:
            self._was_crowded = False
            self.handler.on_drain()

    def _read(self) -> None:
        while self._incoming and self._is_reading and not self.is_closed and self.handler is not None:
            data = memoryview(bytearray(self._incoming.popleft()))
            try:
                self.handler.on_data(data)
            except PowerCut:
                return

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        asyncio.get_running_loop().call_soon(self._read)

    def close(self) -> None:
        """What was sent before arrives before the end does."""
        if not self.is_closed:
            self._fabric.deliver_end(self)
            self.end(None)

    def abort(self) -> None:
        self.close()

    def end(self, error: Exception | None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._fabric.forget(self)
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.on_close(error)


class SimListener:
    def __init__(self, fabric: Fabric, address: tuple[str, int], accept: Callable[[Connection], ConnectionHandler]) -> None:
        self._fabric = fabric
        self.address = address
        self._accept = accept
        self._is_paused = False
        self._backlog: list[SimConnection] = []

    def accept(self, connection: SimConnection) -> None:
        if self._is_paused:
            self._backlog.append(connection)
        else:
            self._hand_over(connection)

    def _hand_over(self, connection: SimConnection) -> None:
        handler = self._accept(connection)
        if connection.is_closed:  # refused by the handler's factory
            handler.on_close(None)
        else:
            connection.start(handler)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        while self._backlog and not self._is_paused:
            connection = self._backlog.pop(0)
            self._hand_over(connection)

    async def close(self) -> None:
        self._fabric.listeners.pop(self.address, None)


class Fabric:
    """The wires between all hosts of a simulation."""

    def __init__(self, rng: random.Random, trace: Trace, *, delay_ms_max: float = 1.0) -> None:
        self._rng = rng
        self._trace = trace
        self._delay_ms_max = delay_ms_max
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self._connections: dict[SimConnection, None] = {}
        self._cut: set[tuple[str, str]] = set()  # from, to
        self._held: list[tuple[SimConnection, bytes | None]] = []
        self._last_port = EPHEMERAL_PORT

    def network(self, host: str) -> SimNetwork:
        return SimNetwork(self, host)

    def port(self) -> int:
        self._last_port += 1
        return self._last_port

    def cut(self, data: bytes) -> list[bytes]:
        """The data in chunks of arbitrary size."""
        chunks = []
        while data:
            size = min(len(data), 1 + self._rng.randrange(CHUNK_BYTES_MAX))
            chunks.append(data[:size])
            data = data[size:]
        return chunks

    def deliver(self, sender: SimConnection, chunk: bytes | None) -> None:
        """``None`` is the end of the stream."""
        if (sender.host, sender.other.host) in self._cut:
            self._held.append((sender, chunk))
            return
        loop = asyncio.get_running_loop()
        arrives = max(sender._arrives_ms + ORDER_MS, loop.time() * 1000 + self._rng.random() * self._delay_ms_max)
        sender._arrives_ms = arrives  # strictly later than the one before: timers of one moment fire in any order
        loop.call_at(arrives / 1000, self._arrive, sender, chunk)

    def deliver_end(self, sender: SimConnection) -> None:
        self.deliver(sender, None)

    def _arrive(self, sender: SimConnection, chunk: bytes | None) -> None:
        receiver = sender.other
        if chunk is None:
            receiver.end(None)
            return
        self._trace.add(f"{sender.local[0]}:{sender.local[1]} -> {receiver.local[0]}:{receiver.local[1]} {len(chunk)}")
        receiver.arrive(chunk)

    def forget(self, connection: SimConnection) -> None:
        self._connections.pop(connection, None)

    def connect(self, host: str, address: tuple[str, int], make: Callable[[Connection], ConnectionHandler]) -> SimConnection:
        listener = self.listeners.get(address)
        if listener is None or (host, address[0]) in self._cut or (address[0], host) in self._cut:
            raise ConnectionRefusedError(f"{address[0]}:{address[1]}")
        local = (host, self.port())
        ours, theirs = SimConnection(self, host, local, address), SimConnection(self, address[0], address, local)
        ours.other, theirs.other = theirs, ours
        self._connections[ours] = self._connections[theirs] = None
        ours.handler = make(ours)
        listener.accept(theirs)
        return ours

    # Faults

    def crash(self, host: str, *, silently: bool = False) -> None:
        """The host has no listeners any more. Its peers get a reset, or, ``silently``, nothing."""
        self._trace.add(f"{host} leaves the network{' silently' if silently else ''}")
        for address in [address for address in self.listeners if address[0] == host]:
            del self.listeners[address]
        for connection in [connection for connection in self._connections if connection.host == host]:
            connection.handler = None
            connection.is_closed = True
            self._connections.pop(connection, None)
            if not silently:
                asyncio.get_running_loop().call_soon(connection.other.end, ConnectionResetError(f"{host} has left the network"))

    def break_connections(self, host: str) -> None:
        """Every connection of the host breaks, wherever in a frame it was."""
        for connection in [connection for connection in self._connections if connection.host == host]:
            for end in (connection, connection.other):
                asyncio.get_running_loop().call_soon(end.end, ConnectionResetError("the link broke"))

    def cut_link(self, source: str, target: str) -> None:
        """Nothing that ``source`` sends reaches ``target``."""
        self._trace.add(f"link {source} -> {target} cut")
        self._cut.add((source, target))

    def heal(self) -> None:
        """Every link works; what was held arrives."""
        self._trace.add("links healed")
        self._cut.clear()
        held, self._held = self._held, []
        for sender, chunk in held:
            self.deliver(sender, chunk)


class SimNetwork:
    """ports.Network, as one host sees it. Every address of the host is its name."""

    def __init__(self, fabric: Fabric, host: str) -> None:
        self._fabric = fabric
        self._host = host

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Connection], ConnectionHandler],
        *,
        backlog: int = BACKLOG,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> SimListener:
        address = (self._host, port or self._fabric.port())
        if address in self._fabric.listeners:
            raise OSError(f"cannot listen on {address[0]}:{address[1]}: address in use")
        listener = self._fabric.listeners[address] = SimListener(self._fabric, address, accept)
        return listener

    async def connect(self, host: str, port: int, make_handler: Callable[[Connection], ConnectionHandler]) -> SimConnection:
        await asyncio.sleep(0)
        return self._fabric.connect(self._host, (host, port), make_handler)
