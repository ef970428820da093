"""Real TCP: listening and connecting, for one event loop. All its connections share one receive buffer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.ports import BACKLOG, Connection, ConnectionHandler, OnTls
from ottla.runtime.connection import RealConnection
from ottla.runtime.descriptors import KEPT_FROM_CONNECTIONS, usable
from ottla.runtime.handshakes import Handshakes
from ottla.runtime.loop import ready_count
from ottla.runtime.tls import client_context, server_context, try_handshake
from ottla.runtime.tls_connection import TlsConnection
from ottla.runtime.warming import Warmer
from ottla.tls import TlsClient, TlsError, TlsPeer, TlsServer
from ottla.wire.frame_memory import FrameMemory

RECEIVE_BUFFER_BYTES: Final = 512 * 1024
RECEIVED_AMONG_MANY_BYTES_MAX: Final = 256 * 1024
"""So much is received at once while many wait for one another; more in one turn costs less for each request."""
MANY_READY: Final = 4
ACCEPTED_AT_ONCE_MAX: Final = 32
"""Then connections that are open have their turn."""
OUT_OF_DESCRIPTORS_SECONDS: Final = 0.1
CONTEXTS_MAX: Final = 16


class RealListener:
    def __init__(
        self,
        adopt: Callable[[socket.socket], RealConnection],
        sock: socket.socket,
        accept: Callable[[Connection], ConnectionHandler],
        set_tls: Callable[[TlsServer], None] | None = None,
    ) -> None:
        self._adopt = adopt
        self._set_tls = set_tls
        self._socket = sock
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._is_paused = False  # by its owner
        self._is_starved = False  # of descriptors, for a while
        self._is_watched = False
        self._descriptors_max = usable(KEPT_FROM_CONNECTIONS)
        self._watch()

    @property
    def address(self) -> tuple[str, int]:
        name: tuple[str, int] = self._socket.getsockname()[:2]
        return name

    def _on_readable(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            if not self._is_watched:  # the handler of the last connection paused it
                return
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # out of descriptors: those that wait stay in the backlog
                    self._starve()
                    return
                raise
            if sock.fileno() >= self._descriptors_max:
                sock.close()
                self._starve()
                return
            with contextlib.suppress(OSError):  # the peer may have closed already
                connection = self._adopt(sock)
                connection.start(self._accept(connection))

    def pause(self) -> None:
        self._is_paused = True
        self._watch()

    def resume(self) -> None:
        self._is_paused = False
        self._watch()

    def set_tls(self, tls: TlsServer) -> None:
        assert self._set_tls is not None, "the listener speaks TLS"
        self._set_tls(tls)

    def _starve(self) -> None:
        self._set_starved(True)
        self._loop.call_later(OUT_OF_DESCRIPTORS_SECONDS, self._set_starved, False)

    def _set_starved(self, is_starved: bool) -> None:
        self._is_starved = is_starved
        self._watch()

    def _watch(self) -> None:
        """Watches the socket for new connections unless the listener is paused or closed."""
        is_wanted = not self._is_paused and not self._is_starved
        if is_wanted == self._is_watched or self._socket.fileno() < 0:
            return
        self._is_watched = is_wanted
        if is_wanted:
            self._loop.add_reader(self._socket, self._on_readable)
        else:
            self._loop.remove_reader(self._socket)

    async def close(self) -> None:
        self.pause()
        self._socket.close()


class RealNetwork:
    """TCP on this machine, for one event loop."""

    def __init__(self, warmer: Warmer) -> None:
        self.warmer = warmer
        self.handshakes = Handshakes()
        self._memory = FrameMemory()
        self._receive_buffer = self._fresh_buffer()
        self.plain_buffer = self._fresh_buffer()
        self.connections: dict[RealConnection, None] = {}
        self._contexts: dict[int, tuple[TlsClient, ssl.SSLContext]] = {}

    async def addresses_of(self, host: str) -> Sequence[str]:
        return [str(place[0]) for *_, place in await _addresses(host, 0)]

    def keep_received(self, count: int) -> None:
        """Keeps the first ``count`` bytes of the buffer: what is received next comes after them, or into another one."""
        self._receive_buffer = self._after(self._receive_buffer, count)

    def receive_buffer(self, loop: asyncio.AbstractEventLoop) -> memoryview:
        buffer = self._receive_buffer
        return buffer if ready_count(loop) < MANY_READY else buffer[:RECEIVED_AMONG_MANY_BYTES_MAX]

    def keep_plain(self, count: int) -> None:
        """Keeps the first ``count`` bytes of ``plain_buffer``, as ``keep_received`` does."""
        self.plain_buffer = self._after(self.plain_buffer, count)

    def _after(self, buffer: memoryview, count: int) -> memoryview:
        """Returns the rest of the buffer, where that is large enough: few bytes that are kept do not hold a whole one."""
        rest = buffer[count:]
        return rest if len(rest) >= RECEIVED_AMONG_MANY_BYTES_MAX else self._fresh_buffer()

    def _fresh_buffer(self) -> memoryview:
        """Returns a whole buffer: one of before, if nothing looks at it any longer."""
        memory = self._memory.lend(RECEIVE_BUFFER_BYTES) or bytearray(RECEIVE_BUFFER_BYTES)
        buffer = memoryview(memory)
        self._memory.take_back(memory)
        return buffer

    def adopt(self, sock: socket.socket) -> RealConnection:
        return RealConnection(self, _set_up(sock))

    def check_tls(self, tls: TlsServer | TlsClient) -> None:
        if isinstance(tls, TlsServer):
            server_context(tls)
        else:
            self._client_context(tls)

    def check_handshake(self, server: TlsServer, client: TlsClient) -> None:
        try_handshake(server, client)

    def _client_context(self, tls: TlsClient) -> ssl.SSLContext:
        """Returns one context for all connections of the same settings: reading certificates takes milliseconds."""
        found = self._contexts.get(id(tls))
        if found is None or found[0] is not tls:
            if len(self._contexts) >= CONTEXTS_MAX:
                self._contexts.clear()  # settings that were replaced are among them
            found = self._contexts[id(tls)] = tls, client_context(tls)
        return found[1]

    def _adopt_client(self, sock: socket.socket, tls: TlsClient, host: str, done: asyncio.Future[None]) -> RealConnection:
        def on_handshake(_: Connection, peer: TlsPeer | TlsError) -> None:
            if done.done():
                return
            if isinstance(peer, TlsError):
                done.set_exception(peer)
            else:
                done.set_result(None)

        name = host.removesuffix(".")  # the dot says that the name is whole; no certificate has it, nor may a ClientHello (RFC 6066)
        return TlsConnection(self, _set_up(sock), self._client_context(tls), name, on_handshake)

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
    ) -> RealListener:
        adopt: Callable[[socket.socket], RealConnection] = self.adopt
        set_tls: Callable[[TlsServer], None] | None = None
        if tls is not None:
            context, heard = server_context(tls), on_tls or (lambda connection, peer: None)

            def adopt(sock: socket.socket) -> RealConnection:
                return TlsConnection(self, _set_up(sock), context, None, heard)

            def set_tls(tls: TlsServer) -> None:
                nonlocal context
                context = server_context(tls)

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes)):
                if size >= 0:  # accepted sockets inherit the listening socket's sizes
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            sock.bind((host, port))
            sock.listen(backlog)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        return RealListener(adopt, sock, accept, set_tls)

    async def connect(
        self,
        host: str,
        port: int,
        make_handler: Callable[[Connection], ConnectionHandler],
        *,
        receive_buffer_bytes: int = -1,
        tls: TlsClient | None = None,
    ) -> RealConnection:
        loop = asyncio.get_running_loop()
        problem: OSError | None = None
        for family, kind, protocol, _, address in await _addresses(host, port):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                if receive_buffer_bytes >= 0:  # before it connects: the two ends agree on a window's scale then
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
                await loop.sock_connect(sock, address)
                done = None if tls is None else loop.create_future()
                connection = self.adopt(sock) if done is None or tls is None else self._adopt_client(sock, tls, host, done)
            except OSError as error:
                sock.close()
                problem = error
                continue
            except BaseException:
                sock.close()
                raise
            connection.start(make_handler(connection))
            if done is not None:
                try:
                    await done
                except BaseException:
                    connection.abort()
                    raise
            return connection
        raise problem or OSError(f"{host} has no address")


async def _addresses(host: str, port: int) -> Sequence[tuple[int, int, int, str, Any]]:
    """Resolves the host. OSError for an unknown host, and for a name that no host can have, which another node may have advertised."""
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError:  # of the codec of names
        raise OSError(f"{host[:100]!r} is no name of a host") from None


def _set_up(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
