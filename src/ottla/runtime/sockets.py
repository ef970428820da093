"""Real TCP: listening and connecting, for one event loop. All its connections share one receive buffer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Final

from ottla.ports import BACKLOG, Connection, ConnectionHandler
from ottla.runtime.connection import RealConnection
from ottla.runtime.descriptors import KEPT_FROM_CONNECTIONS, usable
from ottla.runtime.warming import Warmer
from ottla.wire.frame_memory import FrameMemory

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
ACCEPTED_AT_ONCE_MAX: Final = 32
"""Then connections that are open have their turn."""
OUT_OF_DESCRIPTORS_SECONDS: Final = 0.1


class RealListener:
    def __init__(self, network: RealNetwork, sock: socket.socket, accept: Callable[[Connection], ConnectionHandler]) -> None:
        self._network = network
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
                connection = self._network.adopt(sock)
                connection.start(self._accept(connection))

    def pause(self) -> None:
        self._is_paused = True
        self._watch()

    def resume(self) -> None:
        self._is_paused = False
        self._watch()

    def _starve(self) -> None:
        self._set_starved(True)
        self._loop.call_later(OUT_OF_DESCRIPTORS_SECONDS, self._set_starved, False)

    def _set_starved(self, is_starved: bool) -> None:
        self._is_starved = is_starved
        self._watch()

    def _watch(self) -> None:
        """The socket is watched for new connections unless the listener is paused or closed."""
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
        self._memory = FrameMemory()
        self.renew_receive_buffer()
        self.connections: dict[RealConnection, None] = {}

    def renew_receive_buffer(self) -> None:
        """The old one is used again when nothing looks at it any more."""
        memory = self._memory.lend(RECEIVE_BUFFER_BYTES) or bytearray(RECEIVE_BUFFER_BYTES)
        self.receive_buffer = memoryview(memory)
        self._memory.take_back(memory)

    def adopt(self, sock: socket.socket) -> RealConnection:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return RealConnection(self, sock)

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Connection], ConnectionHandler],
        *,
        backlog: int = BACKLOG,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> RealListener:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes)):
                if size >= 0:  # accepted sockets have those of the one that listens
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            sock.bind((host, port))
            sock.listen(backlog)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        return RealListener(self, sock, accept)

    async def connect(
        self, host: str, port: int, make_handler: Callable[[Connection], ConnectionHandler], *, receive_buffer_bytes: int = -1
    ) -> RealConnection:
        loop = asyncio.get_running_loop()
        problem: OSError | None = None
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                if receive_buffer_bytes >= 0:  # before it connects: the two ends agree on a window's scale then
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
                await loop.sock_connect(sock, address)
                connection = self.adopt(sock)
            except OSError as error:
                sock.close()
                problem = error
                continue
            except BaseException:
                sock.close()
                raise
            connection.start(make_handler(connection))
            return connection
        raise problem or OSError(f"{host} has no address")
