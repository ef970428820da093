"""A connection in front of another one, and a network in front of another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.ports import BACKLOG, Buffer, Connection, ConnectionHandler, FileRegion, Listener, Network, OnTls
from ottla.tls import TlsClient, TlsServer


class PassingConnection:
    """A ``Connection`` that passes everything on to ``_transport``, except what a subclass does otherwise."""

    def __init__(self, transport: Connection) -> None:
        self._transport = transport

    @property
    def peer(self) -> tuple[str, int]:
        return self._transport.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._transport.local

    @property
    def unsent_bytes(self) -> int:
        return self._transport.unsent_bytes

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closed

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        self._transport.send(buffers)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def turn_away(self) -> None:
        self._transport.turn_away()

    def probe(self) -> None:
        self._transport.probe()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


class PassingNetwork:
    """A ``Network`` that passes everything on to ``_network``, except what a subclass does otherwise."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def accepting(self, port: int, accept: Callable[[Connection], ConnectionHandler]) -> Callable[[Connection], ConnectionHandler]:
        """Returns what accepts the connections to the port."""
        return accept

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Connection], ConnectionHandler],
        *,
        backlog: int = BACKLOG,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        tls: TlsServer | None = None,
        on_tls: OnTls | None = None,
    ) -> Listener:
        return await self._network.listen(
            host, port, self.accepting(port, accept), backlog=backlog, send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes, tls=tls, on_tls=on_tls,
        )  # fmt: skip

    async def addresses_of(self, host: str) -> Sequence[str]:
        return await self._network.addresses_of(host)

    def check_tls(self, tls: TlsServer | TlsClient) -> None:
        self._network.check_tls(tls)

    def check_handshake(self, server: TlsServer, client: TlsClient) -> None:
        self._network.check_handshake(server, client)

    async def connect(
        self,
        host: str,
        port: int,
        make_handler: Callable[[Connection], ConnectionHandler],
        *,
        receive_buffer_bytes: int = -1,
        tls: TlsClient | None = None,
    ) -> Connection:
        return await self._network.connect(host, port, make_handler, receive_buffer_bytes=receive_buffer_bytes, tls=tls)
