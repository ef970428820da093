"""A connection that speaks TLS: a ``RealConnection`` with an ``SSLObject`` between its socket and its handler.

Reading. What the socket gave goes to OpenSSL in pieces, each when it wants more, and what that has decrypted goes to the handler as one:
what a handler does for many requests at once, it does less often then. What stays inside of OpenSSL makes no event, so all of it is
read. Writing. Buffers and file regions are sealed in pieces; regions wait unsealed while the socket takes no more. A ``MemoryBIO`` keeps
the largest amount it ever held, hence the size of the pieces.

A stream that ends without close_notify ends as by a reset: a frame that is not complete is dropped by who cuts frames. The handshake takes
``HANDSHAKE_BYTES_MAX`` of the peer at most; how long it may take is the handler's owner's to say. Of a server its steps run on another
thread: until one is done, nothing here touches OpenSSL's object, nor the memory on both its sides.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ottla.errors import DecodeError
from ottla.ports import Buffer, ConnectionHandler, FileRegion
from ottla.runtime.connection import DRAIN_GRACE_SECONDS, Network, RealConnection, _bytes_of, _ColdError
from ottla.runtime.files import RealFileRegion
from ottla.runtime.handshakes import try_step
from ottla.runtime.tls import problem_of
from ottla.security.distinguished_name import subject_of
from ottla.tls import TlsEndedError, TlsError, TlsPeer

PIECE_BYTES: Final = 64 * 1024
NOTHING: Final = memoryview(b"")
SEALED_AT_ONCE: Final = 4
"""Pieces that go to one ``sendmsg``."""
HANDSHAKE_BYTES_MAX: Final = 32 * 1024

OnHandshake = Callable[["TlsConnection", TlsPeer | TlsError], None]


class TlsConnection(RealConnection):
    """One socket. ``on_handshake`` is called once, when the handshake is done, or has failed."""

    __slots__ = (
        "_arrived",
        "_has_hands",
        "_incoming",
        "_is_shaking",
        "_is_turned_away",
        "_on_handshake",
        "_outgoing",
        "_plain",
        "_received",
        "_sealed",
        "_sealed_bytes",
        "_ssl",
    )

    def __init__(self, network: Network, sock: socket.socket, context: ssl.SSLContext, host: str | None, on_handshake: OnHandshake) -> None:
        """Makes the connection; ``host`` is the server's name at a client, None at a server."""
        super().__init__(network, sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=host is None, server_hostname=host)
        self._on_handshake: OnHandshake | None = on_handshake
        self._has_hands = False  # the handshake is done
        self._is_shaking = False  # a step of it is under way, on another thread
        self._is_turned_away = False
        self._arrived = 0  # bytes of the handshake
        self._sealed: deque[memoryview] = deque()
        self._sealed_bytes = 0
        self._received = NOTHING  # what OpenSSL has not got yet, in the network's buffer; empty between events
        self._plain = False  # OpenSSL may have decrypted what has not been read

    def start(self, handler: ConnectionHandler) -> None:
        super().start(handler)
        if self.is_closed or self._is_turned_away:
            return
        self._watch()  # the handler may want nothing yet, and the handshake is not its matter
        if not self._ssl.server_side:
            self._shake_hands()

    @property
    def unsent_bytes(self) -> int:
        return self._unsent + self._sealed_bytes

    # -- reading

    def resume_reading(self) -> None:
        super().resume_reading()
        if self._plain:
            self._loop.call_soon(self._read_plain)

    def pause_reading(self) -> None:
        """Pauses; before the handshake is done it is not the handler's bytes that are read."""
        if self._has_hands or self._closing:
            super().pause_reading()
        else:
            self._is_paused = True

    def turn_away(self) -> None:
        self._is_paused = self._is_turned_away = True

    def _watch(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def _stop_watching(self) -> None:
        self._reading = False
        self._loop.remove_reader(self._socket)

    def _on_readable(self) -> None:
        if self._is_shaking:  # the peer says more before it has an answer
            self._stop_watching()
            return
        view = self._network.receive_buffer(self._loop)
        try:
            count = self._socket.recv_into(view if self._has_hands else view[:PIECE_BYTES])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error)
            return
        if count == 0:
            self._fail(None)
            return
        self._received = view[:count]
        if self._has_hands:
            self._plain = True
            self._read_plain()
            while not self.is_closed and self._feed():  # for a handler that pauses
                pass
            self._received = NOTHING
        else:
            self._arrived += self._feed()
            self._received = NOTHING
            self._shake_hands()

    def _feed(self) -> int:
        """Gives OpenSSL the next piece; returns its size."""
        piece = self._received[:PIECE_BYTES]
        self._incoming.write(piece)
        self._received = self._received[PIECE_BYTES:]
        return len(piece)

    def _shake_hands(self) -> None:
        if self._ssl.server_side:
            self._is_shaking = True
            self._network.handshakes.step(self._ssl, lambda: self.is_closed, self._on_step)
        else:
            self._on_step(try_step(self._ssl))

    def _on_step(self, problem: Exception | None) -> None:
        """Goes on after a step of the handshake, which has raised ``problem``."""
        self._is_shaking = False
        if self._closing:
            return
        if isinstance(problem, ssl.SSLWantReadError):
            self._watch()
            self._collect_sealed()
            self._write()
            if self._arrived > HANDSHAKE_BYTES_MAX and not self.is_closed:
                self._fail(TlsError(f"a TLS handshake of more than {HANDSHAKE_BYTES_MAX} bytes"))
        elif problem is not None:
            self._say_goodbye()
            self._fail(problem_of(problem))
        else:
            self._end_handshake()

    def _end_handshake(self) -> None:
        self._has_hands = self._plain = True
        try:
            peer = self._peer()
        except DecodeError as error:
            self._fail(TlsError(f"the peer's certificate cannot be read: {error.message}"))
            return
        self._watch()
        on_handshake, self._on_handshake = self._on_handshake, None
        assert on_handshake is not None, "a handshake is done once"
        self._collect_sealed()
        on_handshake(self, peer)
        self._go_on()

    def _go_on(self) -> None:
        """Sends what was to be sent during the handshake, which is done, unless the connection was closed for it."""
        if self.is_closed:
            return
        if self._is_paused:
            super().pause_reading()
        self._write()
        self._read_plain()

    def _peer(self) -> TlsPeer:
        certificate, cipher = self._ssl.getpeercert(binary_form=True), self._ssl.cipher()
        return TlsPeer(subject_of(certificate) if certificate else None, self._ssl.version() or "", cipher[0] if cipher else "")

    def _read_plain(self) -> None:
        """Hands the handler all that is decrypted, unless it does not want more."""
        while not self.is_closed and not self._is_paused and not self._closing:
            into = self._into
            view = self._network.plain_buffer if into is None else into
            filled, wants_more = self._decrypt_into(view)
            if filled:
                handler = self._handler
                assert handler is not None, "a connection that reads has a handler"
                is_kept = handler.on_data(view[:filled])
                if is_kept and into is None:
                    self._network.keep_plain(filled)
                self._into = self._room_of(handler)
            if wants_more:
                return

    def _room_of(self, handler: ConnectionHandler) -> memoryview | None:
        return None if self.is_closed else handler.room()

    def _decrypt_into(self, view: memoryview) -> tuple[int, bool]:
        """Returns how much was decrypted, and whether there is no more for now; the connection may have ended."""
        filled = 0
        read: Callable[[int, memoryview], int] = self._ssl.read  # type: ignore[assignment]  # with a buffer it returns a count
        try:
            while filled < len(view):
                try:
                    count = read(len(view) - filled, view[filled:])
                except ssl.SSLWantReadError:
                    if self._feed():
                        continue
                    self._plain = False
                    return filled, True
                if count == 0:  # close_notify
                    raise ssl.SSLZeroReturnError
                filled += count
        except ssl.SSLZeroReturnError:
            self._plain = False
            self._loop.call_soon(self._end_in_order)
            return filled, True
        except ssl.SSLError as error:
            self._plain = False
            self._loop.call_soon(self._end_if_open, problem_of(error))
            return filled, True
        return filled, False

    def _end_in_order(self) -> None:
        """Ends the connection: the peer has said goodbye."""
        if not self.is_closed:
            self._say_goodbye()
            self._end(None)

    def _end_if_open(self, error: Exception | None) -> None:
        if not self.is_closed:
            self._end(error)

    # -- writing

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self._closing or self.is_closed:
            return
        for item in buffers:
            length = len(item)
            if length:
                assert isinstance(item, (bytes, bytearray, memoryview, RealFileRegion)), "regions of this world's files only"
                if length > PIECE_BYTES and isinstance(item, RealFileRegion):
                    self._out.extend(item.windows(PIECE_BYTES))
                else:
                    self._out.append(item)
                self._unsent += length
        if not self._is_writing and not self._is_warming:
            self._write()

    def _write(self, *, has_waited: bool = False) -> None:
        try:
            while True:
                self._send_sealed()
                if not self._out or not self._has_hands:
                    break
                self._seal()
        except (BlockingIOError, InterruptedError):
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._socket, self._on_writable)
            return
        except _ColdError:
            self._stop_waiting_to_write()
            self._warm_head()
            return
        except OSError as error:  # an SSLError is one
            self._fail(error)
            return
        has_waited = has_waited or self._is_writing
        self._stop_waiting_to_write()
        if has_waited and self._handler is not None and not self._closing:
            self._handler.on_drain()
        if self._closing and not self._out:
            self._say_goodbye()
            self._end(None)

    def _seal(self) -> None:
        """Seals some of what is to be sent: a few pieces, and what is small gathered to one of them."""
        out = self._out
        for _ in range(SEALED_AT_ONCE):
            if not out:
                break
            gathered: list[Buffer] = []
            size = 0
            while out and size < PIECE_BYTES:
                item = out[0]
                if isinstance(item, RealFileRegion):
                    found = _bytes_of(item)
                    if found is None:
                        if not gathered and not self._sealed:
                            raise _ColdError
                        break
                    if gathered and size + len(found) > PIECE_BYTES:
                        out[0] = found  # read once is enough
                        break
                    gathered.append(found)
                    out.popleft()
                elif len(item) <= PIECE_BYTES - size:
                    gathered.append(item)
                    out.popleft()
                elif gathered:
                    break
                else:
                    view = memoryview(item)
                    gathered.append(view[:PIECE_BYTES])
                    out[0] = view[PIECE_BYTES:]
                size += len(gathered[-1])
            if not gathered:
                break
            self._unsent -= size
            self._ssl.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
            self._collect_sealed()

    def _collect_sealed(self) -> None:
        data = self._outgoing.read()
        if data:
            self._sealed.append(memoryview(data))
            self._sealed_bytes += len(data)

    def _send_sealed(self) -> None:
        """Sends all of it; BlockingIOError when the socket takes no more."""
        sealed = self._sealed
        while sealed:
            sent = self._socket.sendmsg(list(sealed)[: 2 * SEALED_AT_ONCE])
            self._sealed_bytes -= sent
            while sent:
                first = sealed[0]
                if sent < len(first):
                    sealed[0] = first[sent:]
                    break
                sent -= len(first)
                sealed.popleft()

    # -- the end

    def close(self) -> None:
        if self._closing or self.is_closed:
            return
        self._closing = True
        super().pause_reading()
        if self._out or self._sealed:
            self._loop.call_later(DRAIN_GRACE_SECONDS, self.abort)
        else:
            self._say_goodbye()
            self._end(None)

    def _say_goodbye(self) -> None:
        """Sends close_notify, or an alert, if the socket takes it."""
        if self._is_shaking or self.is_closed:
            return
        with contextlib.suppress(OSError):
            if self._has_hands:
                with contextlib.suppress(ssl.SSLError):
                    self._ssl.unwrap()
            self._collect_sealed()
            self._send_sealed()

    def _fail(self, error: Exception | None) -> None:
        """Ends the connection; a handshake that was going on has failed."""
        if self.is_closed:
            return
        on_handshake, self._on_handshake = self._on_handshake, None
        if on_handshake is not None:
            error = (
                error
                if isinstance(error, TlsError)
                else TlsEndedError(f"the connection ended in the TLS handshake: {error or 'closed by the peer'}")
            )
            on_handshake(self, error)
        self._end_if_open(error)

    def _end(self, error: Exception | None) -> None:
        if not self.is_closed:
            del self._ssl, self._incoming, self._outgoing  # 25 KB: the connection is in a cycle, which the collector comes to late
        self._closing = True
        self._sealed.clear()
        self._sealed_bytes = 0
        self._on_handshake = None
        super()._end(error)
