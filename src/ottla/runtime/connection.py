"""One raw, non-blocking TCP socket on the event loop's readiness callbacks.

Reading. All connections of a loop share one receive buffer; a handler that keeps views of it says so, and the loop takes
a fresh one. When it was full, what follows is received where it belongs, if the handler knows that. Writing. Buffers leave
in vectored sends; a file region of some size leaves by ``sendfile``, straight from the page cache, with MSG_MORE joining it
to the bytes before it; a small one is read and sent with the rest, which is cheaper below 64 KiB (docs/decisions/0002). What
is not in the page cache is first brought there by a worker.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from ottla.ports import Buffer, ConnectionHandler, FileRegion
from ottla.runtime.files import IOV_MAX, RealFileRegion
from ottla.runtime.handshakes import Handshakes
from ottla.runtime.io_policy import PATHS
from ottla.runtime.warming import WINDOW_BYTES, Warmer, is_warm, read_if_warm

SENDFILE_BYTES_MAX: Final = 2 * 1024 * 1024
"""In one call: a fetch of the usual mebibyte in one piece was a third faster than in two, where one fetch is in flight."""
GATHER_BYTES_MAX: Final = 512 * 1024  # in one sendmsg
DRAIN_GRACE_SECONDS: Final = 5.0

_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
_PROBE: Final = (
    (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 127),  # over two hours of silence, which is for others to judge
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),  # seconds; Linux sends one at once where it was idle for longer
    )
    if hasattr(socket, "TCP_KEEPIDLE")
    else ()
)


class _ColdError(Exception):
    """The region at the head of the queue is not in the page cache."""


class Network(Protocol):
    """The things that the connections of one loop share."""

    plain_buffer: memoryview  # for what TLS has decrypted
    warmer: Warmer
    handshakes: Handshakes
    connections: dict[RealConnection, None]  # those that are open

    def receive_buffer(self, loop: asyncio.AbstractEventLoop) -> memoryview:
        """Returns where the next bytes are received, as many as one connection may have in the loop's present turn."""
        ...

    def keep_received(self, count: int) -> None:
        """Keeps the first bytes of the buffer: views of them are still read."""
        ...

    def keep_plain(self, count: int) -> None:
        """Keeps the first bytes of ``plain_buffer``: views of them are still read."""
        ...


MAPPED: Final = "::ffff:"
"""What precedes the address of an IPv4 peer at a socket of both kinds: rules name the address alone, as Java's do."""


class RealConnection:
    """One socket. ``network`` lends the receive buffer."""

    __slots__ = (
        "_closing",
        "_handler",
        "_into",
        "_is_paused",
        "_is_warming",
        "_is_writing",
        "_loop",
        "_network",
        "_out",
        "_reading",
        "_socket",
        "_unsent",
        "local",
        "peer",
    )

    def __init__(self, network: Network, sock: socket.socket) -> None:
        self._network = network
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._out: deque[Buffer | RealFileRegion] = deque()
        self._unsent = 0
        self._is_writing = False  # waiting for the socket to take more
        self._is_warming = False  # waiting for a worker to read what comes next
        self._closing = False
        self._reading = False
        self._is_paused = False
        host, port = sock.getpeername()[:2]
        self.peer: tuple[str, int] = (host[len(MAPPED) :] if host.startswith(MAPPED) and "." in host else host, port)
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self._handler: ConnectionHandler | None = None
        self._into: memoryview | None = None  # where the next bytes belong

    def start(self, handler: ConnectionHandler) -> None:
        if self.is_closed:  # refused by the handler's factory
            handler.on_close(None)
            return
        self._handler = handler
        self._network.connections[self] = None
        if not self._is_paused:
            self.resume_reading()

    @property
    def unsent_bytes(self) -> int:
        return self._unsent

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._reading and not self._closing and not self.is_closed:
            self._reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def turn_away(self) -> None:
        self.pause_reading()

    def probe(self) -> None:
        if not self.is_closed:
            for level, option, value in _PROBE:
                self._socket.setsockopt(level, option, value)

    def _on_readable(self) -> None:
        into = self._into
        view = self._network.receive_buffer(self._loop) if into is None else into
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
        handler = self._handler
        assert handler is not None, "a connection that reads has a handler"
        is_kept = handler.on_data(view[:count])
        if into is not None or count == len(view):
            self._into = None if self.is_closed else handler.room()
        if is_kept and into is None:
            self._network.keep_received(count)

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self._closing or self.is_closed:
            return
        out = self._out
        for item in buffers:
            length = len(item)
            if length:
                assert isinstance(item, (bytes, bytearray, memoryview, RealFileRegion)), "regions of this world's files only"
                if WINDOW_BYTES < length < PATHS.sendfile_bytes_min and isinstance(item, RealFileRegion):
                    out.extend(item.windows(WINDOW_BYTES))  # where sendfile is missing, at most that much is read at a time
                else:
                    out.append(item)
                self._unsent += length
        if not self._is_writing and not self._is_warming:
            self._write()

    def _write(self, *, has_waited: bool = False) -> None:
        """Sends until everything has been sent, the socket accepts nothing further, or the disk has to be read.

        The handler is notified when everything has been sent, if some of it had to wait, for the socket or for the disk.
        """
        out = self._out
        try:
            while out:
                first = out[0]
                if isinstance(first, RealFileRegion) and first.length >= PATHS.sendfile_bytes_min:
                    self._send_file(first)
                else:
                    self._send_gathered()
        except (BlockingIOError, InterruptedError):
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._socket, self._on_writable)
            return
        except _ColdError:
            self._stop_waiting_to_write()
            self._warm_head()
            return
        except OSError as error:
            self._end(error)
            return
        has_waited = has_waited or self._is_writing
        self._stop_waiting_to_write()
        if has_waited and self._handler is not None and not self._closing:
            self._handler.on_drain()
        if self._closing:
            self._end(None)

    def _stop_waiting_to_write(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)

    def _warm_head(self) -> None:
        """Has a worker read the next window of the region at the head; then sending continues."""
        region = self._out[0]
        assert isinstance(region, RealFileRegion), "only file regions can be cold"
        length = min(region.length, WINDOW_BYTES)

        def go_on() -> None:
            self._is_warming = False
            region.warm_end = region.offset + length
            if not self.is_closed:
                self._write(has_waited=True)

        self._is_warming = True
        self._network.warmer.warm(region.file.descriptor, region.offset, length, go_on)

    def _send_file(self, region: RealFileRegion) -> None:
        descriptor = region.file.descriptor
        while region.length:
            if region.offset >= region.warm_end:
                region.warm_end = _warm_end(region)
                if region.offset >= region.warm_end:
                    raise _ColdError
            sent = os.sendfile(self._socket.fileno(), descriptor, region.offset, min(region.length, region.warm_end - region.offset))
            if sent == 0:
                raise _ends_too_early(region)
            region.offset += sent
            region.length -= sent
            self._unsent -= sent
        self._out.popleft()

    def _send_gathered(self) -> None:
        """Sends the head of the queue in one vectored send, up to the next large or cold region."""
        out = self._out
        flags = 0
        gathered: list[Buffer] = []
        size = 0
        for item in out:
            if isinstance(item, RealFileRegion):
                if item.length >= PATHS.sendfile_bytes_min:
                    flags = _MSG_MORE
                    break
                found = _bytes_of(item)
                if found is None:
                    if not gathered:
                        raise _ColdError
                    break
                gathered.append(found)
            else:
                gathered.append(item)
            size += len(gathered[-1])
            if len(gathered) == IOV_MAX or size >= GATHER_BYTES_MAX:
                break
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
        self._stop_waiting_to_write()
        self._out.clear()
        self._unsent = 0
        self._closing = True
        self._into = None
        self._network.connections.pop(self, None)
        self._socket.close()
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_close(error)


def _warm_end(region: RealFileRegion) -> int:
    """Returns up to where the region is cached, window by window, as far as it would be sent at once."""
    position, end = region.offset, region.offset + min(region.length, SENDFILE_BYTES_MAX)
    while position < end and is_warm(region.file.descriptor, position, min(WINDOW_BYTES, end - position)):
        position += WINDOW_BYTES
    return min(position, end)


def _bytes_of(region: RealFileRegion) -> bytes | bytearray | None:
    """Returns a small region's bytes; None when they are cold."""
    is_known_warm = region.offset < region.warm_end
    data = region.read() if is_known_warm else read_if_warm(region.file.descriptor, region.offset, region.length)
    if data is not None and len(data) != region.length:
        raise _ends_too_early(region)
    return data


def _ends_too_early(region: RealFileRegion) -> OSError:
    return OSError(errno.EIO, f"{region.file.path} ends before byte {region.offset + region.length}")
