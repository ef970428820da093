"""Streams and listeners as the kernels of two simulated hosts have them.

What a process sends waits in the process until the kernel has room for it, and a file region is read only then, as ``sendfile`` does: an
answer may have what was written to the file after it was made. A region that is not in the page cache is read later still.

A kernel works while its process is paused: it takes connections into the listener's backlog and data into a buffer, both bounded, and
no answer comes. It also works when the process has died, and then says so: to who sends on a connection that is gone, with a reset.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from ottla.ports import Buffer, Connection, ConnectionHandler, FileRegion, OnTls
from ottla.sim.files import SimFileRegion
from ottla.sim.link import Link
from ottla.sim.process import Process
from ottla.tls import TlsClient, TlsPeer, TlsServer

Address = tuple[str, int]

CHUNK_BYTES_MAX: Final = 8192
SEND_QUEUE_BYTES_MAX: Final = 64 * 1024
RECEIVE_BUFFER_BYTES: Final = 128 * 1024
"""What a kernel takes for a process that does not read; the rest stays with the sender."""
DRAIN_GRACE_SECONDS: Final = 5.0
"""So long a connection that is closed waits for what it has still to send."""


class Signal(Enum):
    """A signal between kernels, beside data."""

    OPEN = auto()
    OPENED = auto()
    CONFIRMED = auto()  # the third of the handshake: now there is a connection for the listener
    REFUSED = auto()
    END = auto()
    RESET = auto()


class Wires(Protocol):
    """The network, as its connections know it."""

    counts: Counter[str]

    def on_open(self, connection: SimConnection) -> None:
        """Opens or refuses a connection that the other end asks for; this end is its listener's, if there is one."""
        ...

    def on_arrival(self, connection: SimConnection, size: int) -> None: ...
    def forget(self, connection: SimConnection) -> None: ...


class SimConnection:
    """One end of a stream."""

    def __init__(self, wires: Wires, link: Link, local: Address, peer: Address) -> None:
        """Makes one end of a connection. This end sends on ``link``."""
        self._wires = wires
        self._link = link
        self.local, self.peer = local, peer
        self.other: SimConnection
        self.process: Process | None = None  # whose this end is; of a listener's end once the kernel knows
        self.listener: SimListener | None = None
        self.opened: asyncio.Future[None] | None = None  # for who connects
        self.tls: TlsClient | None = None  # of who connects
        self.tls_peer: TlsPeer | None = None  # of who is connected to
        self.refusal: OSError | None = None  # why it was refused, if not for want of a listener
        self._handler: ConnectionHandler | None = None
        self._wire: deque[bytes | Signal] = deque()  # sent, and not yet arrived: in order, whichever chunk's delay ends first
        self._incoming: deque[bytes | Signal] = deque()  # arrived, and not yet read
        self._unread = 0  # bytes of it
        self._waiting = 0  # arrivals that found the buffer full
        self._queue: deque[memoryview | SimFileRegion] = deque()  # that the process has still to give to the kernel
        self._queued = 0  # bytes of it
        self._room = link.buffer_bytes()  # of the kernel, for what is on the way
        self._is_warming = self._is_warm = False  # the region at the head of the queue is being read from the disk, and was
        self._is_closing = False  # once the queue is empty
        self._on_the_way = 0  # bytes that the kernel has sent and the other kernel has not yet acknowledged
        self._is_reading, self._was_crowded = True, False
        self._error: Exception | None = None
        self.is_closed = False
        self._is_gone = False  # the kernel has forgotten it

    @property
    def host(self) -> str:
        return self.local[0]

    # The process's side

    def start(self, handler: ConnectionHandler) -> None:
        """Hands to the handler what has already arrived, unless the handler does not want to read."""
        if self.is_closed:
            handler.on_close(self._error)
            return
        self._handler = handler
        if self._incoming:
            self._soon(self._read)

    @property
    def unsent_bytes(self) -> int:
        return self._on_the_way + self._queued

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self.is_closed or self._is_gone or self._is_closing:
            return
        for item in buffers:
            if len(item):
                self._queue.append(item if isinstance(item, SimFileRegion) else memoryview(bytes(item)))  # type: ignore[arg-type]
                self._queued += len(item)
        self._fill()
        self._was_crowded = self._was_crowded or self.unsent_bytes > SEND_QUEUE_BYTES_MAX

    def _fill(self) -> None:
        """Fills the kernel's buffer as far as it has room."""
        data = bytearray()
        while self._queue and not self._is_warming and not self.is_closed and (room := self._room - self._on_the_way - len(data)) > 0:
            head = self._queue[0]
            if isinstance(head, memoryview):
                taken: Buffer = head[:room]
                self._queue[0] = head[room:]
            elif not self._is_warm and (cold_ms := self._link.cold_ms()) > 0:
                self._is_warming = True
                self._link.later(cold_ms, lambda: self._call(self._warmed))
                break
            else:
                self._is_warm = True
                taken = head.read()[:room]
                if len(taken) < min(room, len(head)):
                    self._wires.counts["file cut while it is sent"] += 1
                    self._break_off()
                    return
                head.offset += len(taken)
                head.length -= len(taken)
            data += taken
            if not len(self._queue[0]):
                self._queue.popleft()
                self._is_warm = False
        self._queued -= len(data)
        self._on_the_way += len(data)
        for chunk in self._link.cut(bytes(data), CHUNK_BYTES_MAX):
            self._put(chunk)
        if self._is_closing and not self._queue:
            self._close_now()

    def _warmed(self) -> None:
        self._is_warming, self._is_warm = False, True
        self._fill()

    def _break_off(self) -> None:
        """Breaks off a region that cannot be sent as promised: the other end receives nothing further."""
        self._queue.clear()
        self._queued = 0
        self._put(Signal.END)
        self._end(OSError(errno.EIO, "a file ends before the region that is sent"))

    def _read(self) -> None:
        while self._incoming and self._is_reading and not self.is_closed and self._handler is not None:
            item = self._incoming.popleft()
            if isinstance(item, Signal):
                self._end(None)
                return
            self._unread -= len(item)
            self._handler.on_data(memoryview(bytearray(item)))
            if self._waiting and self._unread < RECEIVE_BUFFER_BYTES:
                self._ask_for_more()

    def pause_reading(self) -> None:
        self._is_reading = False

    turn_away = pause_reading

    def resume_reading(self) -> None:
        self._is_reading = True
        self._soon(self._read)

    def probe(self) -> None:
        if not self.is_closed and not self._is_gone:
            self._put(b"")

    def close(self) -> None:
        """Closes this end; what was sent before arrives before the end does."""
        if self.is_closed or self._is_closing:
            return
        self._is_closing = True
        self.pause_reading()
        if self._queue:
            asyncio.get_running_loop().call_later(DRAIN_GRACE_SECONDS, self.abort)
        else:
            self._close_now()

    def _close_now(self) -> None:
        if not self.is_closed:
            self._put(Signal.END)
            self._end(None)

    def abort(self) -> None:
        self._queue.clear()
        self._queued = 0
        self._close_now()

    def _end(self, error: Exception | None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._error = error
        self._wires.forget(self)
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_close(error)

    # The kernel's side

    def _put(self, item: bytes | Signal) -> None:
        self._wire.append(item)
        self._link.carry(self.arrive)

    def say(self, signal: Signal) -> None:
        """Signals the other kernel, after all that is on the way."""
        self._put(signal)

    def arrive(self) -> None:
        """Delivers the next item that was sent to the other end."""
        if not self._wire:  # it was lost with the connection
            return
        item, receiver = self._wire[0], self.other
        if isinstance(item, Signal):
            self._wire.popleft()
            receiver._on_signal(item)
        elif receiver._is_full:
            self._wires.counts["receive buffer full"] += 1
            receiver._waiting += 1
        else:
            self._wire.popleft()
            receiver._on_data(item)

    @property
    def _is_full(self) -> bool:
        return self._unread >= RECEIVE_BUFFER_BYTES and not self.is_closed

    def _on_data(self, chunk: bytes) -> None:
        sender, size = self.other, len(chunk)
        if self._is_gone:
            self._wires.counts["data for a forgotten connection"] += 1
            self._put(Signal.RESET)
            return
        if sender._link.is_refused and self.listener is not None:
            sender.lose_all()
            self._put(Signal.RESET)
            return
        if self._link.is_blocked:
            self._link.carry(lambda: sender._on_acknowledged(size))
        else:
            sender._on_acknowledged(size)
        if size and not self.is_closed:
            self._wires.on_arrival(self, size)
            self._incoming.append(chunk)
            self._unread += size
            self._call(self._read)

    def _on_acknowledged(self, size: int) -> None:
        self._on_the_way -= size
        if self._queue:
            self._call(self._fill)
        if self._was_crowded and self.unsent_bytes == 0 and not self.is_closed and self._handler is not None:
            self._was_crowded = False
            self._soon(self._drained)

    def _drained(self) -> None:
        if not self.is_closed and self._handler is not None:
            self._handler.on_drain()

    def _on_signal(self, signal: Signal) -> None:
        match signal:
            case Signal.OPEN:
                self._wires.on_open(self)
            case Signal.OPENED if self._is_gone:
                self._put(Signal.RESET)
            case Signal.OPENED:
                self._put(Signal.CONFIRMED)
                if self.opened is not None and not self.opened.done():
                    self.opened.set_result(None)
            case Signal.CONFIRMED:
                if self.listener is not None and not self._is_gone:
                    self.listener.take(self)
            case Signal.REFUSED:
                refused = ConnectionRefusedError(errno.ECONNREFUSED, f"{self.peer[0]}:{self.peer[1]} refuses connections")
                self.fail(self.refusal or refused)
            case Signal.END:
                self._incoming.append(signal)
                self._call(self._read)
            case Signal.RESET:
                self.fail(ConnectionResetError(errno.ECONNRESET, f"{self.peer[0]} has reset the connection"))

    def fail(self, error: OSError) -> None:
        """Breaks the connection at this end, and loses what it had sent and received."""
        self.lose_all()
        self._is_gone = True
        if self.opened is not None and not self.opened.done():
            self.opened.set_exception(error)
        self._soon(self._end, error)

    def lose_all(self) -> None:
        """Loses what was sent and has not arrived, and what has arrived and was not read."""
        self._queue.clear()
        self._queued = 0
        self._wire.clear()
        self._incoming.clear()
        self._unread = 0
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Resends what found the buffer full."""
        waiting, self._waiting = self._waiting, 0
        for _ in range(waiting):
            self.other._link.carry(self.other.arrive)

    def vanish(self) -> None:
        """Forgets the connection, as a kernel does: nothing runs at this end, and a sender gets a reset once the host is up."""
        if self._handler is not None and self.process is not None:
            self.process.remains.append(self._handler)
        self._handler = None
        self._queue.clear()
        self.is_closed = self._is_gone = True
        self._wires.forget(self)

    @property
    def has_unread(self) -> bool:
        return self._unread > 0

    def _call(self, function: Callable[..., None]) -> None:
        if self.process is not None:
            self.process.call(function)

    def _soon(self, function: Callable[..., None], *arguments: object) -> None:
        if self.process is not None:
            asyncio.get_running_loop().call_soon(function, *arguments, context=self.process.context)


class SimListener:
    def __init__(
        self,
        process: Process,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        backlog: int,
        close: Callable[[SimListener], None],
        tls: TlsServer | None = None,
        on_tls: OnTls | None = None,
    ) -> None:
        self.tls = tls
        self._on_tls = on_tls
        self.process = process
        self.address = address
        self.is_dying = False  # its process has ended, and its port does not know yet
        self._accept = accept
        self._close = close
        self._is_paused, self._backlog_max = False, backlog
        self._backlog: deque[SimConnection] = deque()

    @property
    def is_full(self) -> bool:
        return len(self._backlog) >= self._backlog_max

    def take(self, connection: SimConnection) -> None:
        """Queues the connection in the kernel; the process gets it when it asks."""
        self._backlog.append(connection)
        self.process.call(self._accept_all)

    def _accept_all(self) -> None:
        while self._backlog and not self._is_paused:
            connection = self._backlog.popleft()
            handler = self._accept(connection)
            if connection.tls_peer is not None and self._on_tls is not None:
                self._on_tls(connection, connection.tls_peer)
            connection.start(handler)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._accept_all()

    def set_tls(self, tls: TlsServer) -> None:
        self.tls = tls

    async def close(self) -> None:
        """Resets the connections that were not accepted."""
        self._close(self)
        while self._backlog:
            connection = self._backlog.popleft()
            connection.vanish()
            connection.say(Signal.RESET)
