"""A proxy before a listener, which a test can make misbehave: reset what is open, refuse, or swallow what passes."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from types import TracebackType
from typing import Self

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """``with Proxy(port, target):``; connections to ``port`` are carried to ``target``, both of the loopback address.

    Of several targets each connection gets the next one. It listens on another address when it is given that ``host``.
    """

    def __init__(self, port: int, *targets: int, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = port
        self._targets = itertools.cycle(targets)
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._swallowed: frozenset[str] = frozenset()

    def accept(self) -> None:
        """New connections are carried on."""
        listener = socket.create_server((self.host, self.port))
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def refuse(self) -> None:
        """New connections are refused."""
        assert self._listener is not None, "it accepts"
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None

    def reset(self) -> None:
        """Every open connection is reset."""
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            try:
                end.shutdown(socket.SHUT_RD)  # wakes the thread that reads; nothing is said to the other side
            except OSError:
                pass
            end.close()

    def swallow(self, *directions: str) -> None:
        """What goes "there", or comes "back", is lost."""
        self._swallowed = frozenset(directions)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                asking, _ = listener.accept()
            except OSError:
                return
            try:
                answering = socket.create_connection(("127.0.0.1", next(self._targets)))
            except OSError:
                asking.close()
                continue
            with self._lock:
                self._open += [asking, answering]
            for source, sink, direction in ((asking, answering, "there"), (answering, asking, "back")):
                threading.Thread(target=self._carry, args=(source, sink, direction), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        try:
            while data := source.recv(65536):
                if direction not in self._swallowed:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self) -> Self:
        self.accept()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._listener is not None:
            self.refuse()
        self.reset()
