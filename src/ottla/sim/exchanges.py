"""Exchanges of requests between processes, seen as they happen: a request that is sent, that has been received, that is answered.

Where a watcher is interested, each process's ``ports.Network`` goes through ``Watched``. Nothing is changed but by what the watcher does: a
process that dies of it in that moment has sent nothing more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from ottla.messages.headers import decode_request_header_start
from ottla.net.passing import PassingConnection
from ottla.ports import BACKLOG, Buffer, Connection, ConnectionHandler, FileRegion, Listener, Network
from ottla.sim.process import CURRENT
from ottla.tls import TlsClient, TlsServer
from ottla.wire.frames import LENGTH_BYTES, FrameCutter

FRAME_BYTES_MAX: Final = 2**31 - 1


class Moment(Enum):
    """A moment of one exchange, the last instant before: it is on its way, its receiver sees it, its answer is on its way."""

    SENT = "sent"
    RECEIVED = "received"
    ANSWERED = "answered"


Seen = Callable[[int, Moment, str, str], None]
"""Is called with the API's key, the moment, the host that asks and the host that answers."""


class Watched:
    """The network of one process of a host of that name."""

    def __init__(self, network: Network, host: str, seen: Seen) -> None:
        self._network = network
        self._host = host
        self._seen = seen

    async def listen(
        self, host: str, port: int, accept: Callable[[Connection], ConnectionHandler], *, backlog: int = BACKLOG, **buffers: Any
    ) -> Listener:
        def accepted(connection: Connection) -> ConnectionHandler:
            return _ServersEnd(connection, accept, self._seen, connection.peer[0], self._host)

        return await self._network.listen(host, port, accepted, backlog=backlog, **buffers)

    async def addresses_of(self, host: str) -> Sequence[str]:
        return await self._network.addresses_of(host)

    def check_tls(self, tls: TlsServer | TlsClient) -> None:
        self._network.check_tls(tls)

    def check_handshake(self, server: TlsServer, client: TlsClient) -> None:
        self._network.check_handshake(server, client)

    async def connect(self, host: str, port: int, make_handler: Callable[[Connection], ConnectionHandler], **others: Any) -> Connection:
        made: list[_ClientsEnd] = []

        def make(connection: Connection) -> ConnectionHandler:
            made.append(_ClientsEnd(connection, make_handler, self._seen, self._host, host))
            return made[0].handler

        await self._network.connect(host, port, make, **others)
        return made[0]


class _End(PassingConnection):
    """An end of a connection, of which the watcher sees the exchanges."""

    def __init__(self, connection: Connection, seen: Seen, client: str, server: str) -> None:
        super().__init__(connection)
        self._seen = seen
        self._hosts = client, server

    def _outlives(self, key: int, moment: Moment) -> bool:
        """True when the process survives the moment."""
        self._seen(key, moment, *self._hosts)
        process = CURRENT.get()
        return process is None or not process.is_dead


class _ClientsEnd(_End):
    """Each ``send`` has one request, as all of ours have."""

    def __init__(
        self, connection: Connection, make: Callable[[Connection], ConnectionHandler], seen: Seen, client: str, server: str
    ) -> None:
        super().__init__(connection, seen, client, server)
        self.handler = make(self)

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        sent = memoryview(_joined(buffers))
        if self._outlives(decode_request_header_start(sent[LENGTH_BYTES:])[0], Moment.SENT):
            super().send(buffers)


class _ServersEnd(_End):
    """Answers go out in the order of their requests; the length of one says where the next one starts."""

    def __init__(
        self, connection: Connection, accept: Callable[[Connection], ConnectionHandler], seen: Seen, client: str, server: str
    ) -> None:
        super().__init__(connection, seen, client, server)
        self._requests = FrameCutter(FRAME_BYTES_MAX)
        self._answers = FrameCutter(FRAME_BYTES_MAX)
        self._unanswered: deque[int] = deque()
        self._handler = accept(self)

    def on_data(self, data: memoryview) -> bool:
        for frame, _ in self._requests.feed(memoryview(bytearray(data))):
            key = decode_request_header_start(frame)[0]
            self._unanswered.append(key)
            if not self._outlives(key, Moment.RECEIVED):
                return False
        return self._handler.on_data(data)

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        for _ in self._answers.feed(memoryview(_joined(buffers))):
            if self._unanswered and not self._outlives(self._unanswered.popleft(), Moment.ANSWERED):
                return
        super().send(buffers)

    def room(self) -> memoryview | None:
        return self._handler.room()

    def on_drain(self) -> None:
        self._handler.on_drain()

    def on_close(self, error: Exception | None) -> None:
        self._handler.on_close(error)


def _joined(buffers: Sequence[Buffer | FileRegion]) -> bytearray:
    return bytearray().join(bytes(item) if isinstance(item, bytes | bytearray | memoryview) else item.read() for item in buffers)
