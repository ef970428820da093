"""Real TCP: raw non-blocking sockets on the event loop's readiness callbacks.

Reading. All connections of a loop share one receive buffer; a handler that keeps views of it says so, and the loop takes
a fresh one. Writing. Buffers leave in vectored sends; a file region of some size leaves by ``sendfile``, straight from
the page cache, with MSG_MORE joining it to the bytes before it; a small one is read and sent with the rest, which is
cheaper below 64 KiB (docs/decisions/0002).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ottla.ports import Buffer, Connection, ConnectionHandler, FileRegion
from ottla.runtime.files import IOV_MAX, RealFileRegion

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
SENDFILE_BYTES_MIN: Final = 64 * 1024
GATHER_BYTES_MAX: Final = 512 * 1024  # in one sendmsg
DRAIN_GRACE_SECONDS: Final = 5.0
BACKLOG: Final = 1024

_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
_HAS_SENDFILE: Final = hasattr(os, "sendfile") and os.uname().sysname == "Linux"
_WOULD_BLOCK: Final = (errno.EAGAIN, errno.EWOULDBLOCK)


class RealConnection:
    """One socket. ``network`` lends the receive buffer."""

    __slots__ = ("_closing", "_handler", "_is_writing", "_loop", "_network", "_out", "_reading", "_socket", "_unsent", "local", "peer")

    def __init__(self, network: RealNetwork, sock: socket.socket) -> None:
        self._network = network
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._out: deque[Buffer | RealFileRegion] = deque()
        self._unsent = 0
        self._is_writing = False  # waiting for the socket to take more
        self._closing = False
        self._reading = False
        self.peer: tuple[str, int] = sock.getpeername()[:2]
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self._handler: ConnectionHandler | None = None

    def start(self, handler: ConnectionHandler) -> None:
        self._handler = handler
        self._network.connections[self] = None
        if not self.is_closed:
            self.resume_reading()

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        if not self._reading and not self._closing and not self.is_closed:
            self._reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def _on_readable(self) -> None:
        view = self._network.receive_buffer
        try:
            count = self._socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if count == 0:
            self._end(None)
            return
        assert self._handler is not None, "a connection that reads has a handler"
        if self._handler.on_data(view[:count]):
            self._network.renew_receive_buffer()

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self._closing or self.is_closed:
            return
        out = self._out
        for item in buffers:
            length = len(item)
            if length:
                assert isinstance(item, (bytes, bytearray, memoryview, RealFileRegion)), "regions of this world's files only"
                out.append(item)
                self._unsent += length
        if not self._is_writing:
            self._write()

    def _write(self) -> None:
        """Sends until everything is gone or the socket takes no more."""
        out = self._out
        try:
            while out:
                first = out[0]
                if isinstance(first, RealFileRegion) and first.length >= SENDFILE_BYTES_MIN and _HAS_SENDFILE:
                    self._send_file(first)
                else:
                    self._send_gathered()
        except (BlockingIOError, InterruptedError):
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._socket, self._on_writable)
            return
        except OSError as error:
            self._end(error)
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)
            if self._handler is not None and not self._closing:
                self._handler.on_drain()
        if self._closing:
            self._end(None)

    def _send_file(self, region: RealFileRegion) -> None:
        while region.length:
            sent = os.sendfile(self._socket.fileno(), region.file.descriptor, region.offset, region.length)
            if sent == 0:
                raise OSError(errno.EIO, f"{region.file.path} ends before byte {region.offset + region.length}")
            region.offset += sent
            region.length -= sent
            self._unsent -= sent
        self._out.popleft()

    def _send_gathered(self) -> None:
        """One vectored send of what stands at the head up to the next large region."""
        out = self._out
        flags = 0
        if len(out) == 1:
            gathered = [_bytes_of(out[0])]
        else:
            gathered = []
            size = 0
            for item in out:
                if isinstance(item, RealFileRegion) and item.length >= SENDFILE_BYTES_MIN and _HAS_SENDFILE:
                    flags = _MSG_MORE
                    break
                if len(gathered) == IOV_MAX or size >= GATHER_BYTES_MAX:
                    break
                gathered.append(_bytes_of(item))
                size += len(gathered[-1])
        sent = self._socket.sendmsg(gathered, (), flags)
        self._unsent -= sent
        for piece in gathered:
            if sent < len(piece):
                if sent:
                    out[0] = memoryview(piece)[sent:]
                elif isinstance(out[0], RealFileRegion):
                    out[0] = piece  # read once is enough
                raise BlockingIOError
            sent -= len(piece)
            out.popleft()

    def _on_writable(self) -> None:
        self._write()

    def close(self) -> None:
        if self._closing or self.is_closed:
            return
        self._closing = True
        self.pause_reading()
        if self._out:
            self._loop.call_later(DRAIN_GRACE_SECONDS, self.abort)
        else:
            self._end(None)

    def abort(self) -> None:
        if not self.is_closed:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        self.pause_reading()
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)
        self._out.clear()
        self._unsent = 0
        self._closing = True
        self._network.connections.pop(self, None)
        self._socket.close()
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_close(error)


def _bytes_of(item: Buffer | RealFileRegion) -> Buffer:
    return item.read() if isinstance(item, RealFileRegion) else item


class RealListener:
    def __init__(self, network: RealNetwork, sock: socket.socket, accept: Callable[[Connection], ConnectionHandler]) -> None:
        self._network = network
        self._socket = sock
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._on_readable)

    @property
    def address(self) -> tuple[str, int]:
        name: tuple[str, int] = self._socket.getsockname()[:2]
        return name

    def _on_readable(self) -> None:
        for _ in range(BACKLOG):
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # out of descriptors: those that wait stay in the backlog
                    self._loop.remove_reader(self._socket)
                    self._loop.call_later(0.1, self._resume)
                    return
                raise
            with contextlib.suppress(OSError):  # the peer may be gone already
                connection = self._network.adopt(sock)
                connection.start(self._accept(connection))

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._on_readable)

    async def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()


class RealNetwork:
    """TCP on this machine, for one event loop."""

    def __init__(self) -> None:
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections: dict[RealConnection, None] = {}

    def renew_receive_buffer(self) -> None:
        """Whoever keeps views of the old one keeps it alive."""
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))

    def adopt(self, sock: socket.socket) -> RealConnection:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return RealConnection(self, sock)

    async def listen(self, host: str, port: int, accept: Callable[[Connection], ConnectionHandler]) -> RealListener:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((host, port))
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        return RealListener(self, sock, accept)

    async def connect(self, host: str, port: int, make_handler: Callable[[Connection], ConnectionHandler]) -> RealConnection:
        loop = asyncio.get_running_loop()
        problem: OSError | None = None
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
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
