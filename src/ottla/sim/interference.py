"""What may go wrong between a client and its brokers, exchange by exchange.

``Interference`` sits between a client and its network and sees each request and each answer decoded. Two rules decide: ``refuse`` may
answer a request in the broker's place, so that the broker never sees it; ``alter`` may change an answer. Both may hold the answer back
for some time, or lose it with the connection. Answers of one connection keep their order, so a held one holds those after it as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ottla.client.cluster import Cluster
from ottla.messages.api_keys import ApiKey
from ottla.messages.headers import decode_request_header, decode_request_header_start, decode_response_header, encode_response_header
from ottla.messages.produce import ProduceRequest
from ottla.messages.registry import APIS, Api
from ottla.net.passing import PassingConnection, PassingNetwork
from ottla.ports import Buffer, Connection, ConnectionHandler, FileRegion
from ottla.tls import TlsClient
from ottla.wire.compiler import decode, encode
from ottla.wire.frames import FrameCutter
from ottla.wire.schema import Request, Response

FRAME_BYTES_MAX: Final = 2**31 - 1


@dataclass(slots=True, eq=False)
class Exchange:
    """One request, and what became of it."""

    api: Api
    version: int
    correlation_id: int
    request: Any
    response: bytes | None = None  # the frame for the client, once it is known
    is_lost: bool = False
    is_due: bool = False  # it has been held for as long as it should be


class Held:
    """The answer, or ``instead`` of it another one, arrives ``delay_ms`` later."""

    def __init__(self, delay_ms: float, instead: Response | None = None) -> None:
        self.delay_ms = delay_ms
        self.instead = instead


class Lost:
    """The broker has answered; the connection breaks before the answer arrives."""


Fate = Response | Held | Lost | None
Refuse = Callable[[Request], Fate]
Alter = Callable[[Request, Any], Fate]


class Interference(PassingNetwork):
    """The network between a client and its brokers. ``requests`` are all that went out, in order."""

    def __init__(self, cluster: Cluster) -> None:
        """Puts this network between the cluster and its connections from now on."""
        super().__init__(cluster.world.network)
        cluster.world = msgspec.structs.replace(cluster.world, network=self)
        self.refuse: Refuse = lambda request: None
        self.alter: Alter = lambda request, response: None
        self.requests: list[Request] = []

    def of(self, kind: type[Request]) -> list[Any]:
        """Returns the requests of one kind, in order."""
        return [request for request in self.requests if isinstance(request, kind)]

    async def connect(
        self,
        host: str,
        port: int,
        make_handler: Callable[[Connection], ConnectionHandler],
        *,
        receive_buffer_bytes: int = -1,
        tls: TlsClient | None = None,
    ) -> Connection:
        made: list[_Link] = []

        def make(transport: Connection) -> ConnectionHandler:
            made.append(_Link(self, transport, make_handler))
            return made[0]

        await self._network.connect(host, port, make, tls=tls)
        return made[0]


class _Link(PassingConnection):
    """One connection: to the client a ``Connection``, to the broker's end a ``ConnectionHandler``."""

    def __init__(self, owner: Interference, transport: Connection, make_handler: Callable[[Connection], ConnectionHandler]) -> None:
        self._owner = owner
        super().__init__(transport)
        self._cutter = FrameCutter(FRAME_BYTES_MAX)
        self._unanswered: deque[Exchange] = deque()  # in the order of requests
        self._at_broker: deque[Exchange] = deque()
        self._client = make_handler(self)

    # The client's connection

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self.is_closed:
            return
        frame = memoryview(b"".join(bytes(item) if isinstance(item, bytes | bytearray | memoryview) else item.read() for item in buffers))[
            4:
        ]
        api_key, version, correlation_id = decode_request_header_start(frame)
        api = APIS[api_key]
        _, position = decode_request_header(frame, is_flexible=api.is_flexible(version))
        request = decode(api.request, version, frame[position:])
        self._owner.requests.append(request)
        if not (isinstance(request, ProduceRequest) and request.acks == 0):
            exchange = Exchange(api, version, correlation_id, request)
            self._unanswered.append(exchange)
            fate = self._owner.refuse(request)
            if fate is not None:
                exchange.response = b""
                if not self._settle(exchange, fate):
                    asyncio.get_running_loop().call_soon(self._due, exchange)
                return
            self._at_broker.append(exchange)
        self._transport.send(buffers)

    # The broker's answers

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        for frame, _ in self._cutter.feed(data):
            self._on_answer(self._at_broker.popleft(), bytes(frame))
        return False

    def _on_answer(self, exchange: Exchange, frame: bytes) -> None:
        exchange.response = frame
        if exchange.api.key != ApiKey.API_VERSIONS:
            _, position = decode_response_header(memoryview(frame), is_flexible=exchange.api.has_flexible_response_header(exchange.version))
            response = decode(exchange.api.response, exchange.version, memoryview(frame)[position:])
            if self._settle(exchange, self._owner.alter(exchange.request, response)):
                return
        self._due(exchange)

    def _settle(self, exchange: Exchange, fate: Fate) -> bool:
        """Carries out the fate of the exchange. True when the response is held back, and comes later by itself."""
        instead = fate.instead if isinstance(fate, Held) else fate
        if isinstance(instead, Response):
            exchange.response = _frame(exchange, instead)
        exchange.is_lost = isinstance(fate, Lost)
        if isinstance(fate, Held):
            asyncio.get_running_loop().call_later(fate.delay_ms / 1000, self._due, exchange)
        return isinstance(fate, Held)

    def _due(self, exchange: Exchange) -> None:
        exchange.is_due = True
        while self._unanswered and self._unanswered[0].is_due and not self.is_closed:
            head = self._unanswered.popleft()
            assert head.response is not None, "an answer that is due is known"
            if head.is_lost:
                self._transport.abort()
                return
            self._client.on_data(memoryview(bytearray(len(head.response).to_bytes(4, "big") + head.response)))

    def on_drain(self) -> None:
        self._client.on_drain()

    def on_close(self, error: Exception | None) -> None:
        self._client.on_close(error)


def _frame(exchange: Exchange, response: Response) -> bytes:
    is_flexible = exchange.api.has_flexible_response_header(exchange.version)
    return encode_response_header(exchange.correlation_id, is_flexible=is_flexible) + encode(response, exchange.version)
