"""The steps of a server's TLS handshakes, on a thread of their own.

In one of them the server signs: 0.3 ms of the processor with a key of 2,048 bits (RSA), 4 with one of 4,096. On the loop, all other
connections would wait that long for each that arrives. OpenSSL lets go of the interpreter meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable
from queue import SimpleQueue

IsOver = Callable[[], bool]
OnStep = Callable[[Exception | None], None]


class Handshakes:
    """The thread, which starts when it is first needed. There is one: more would take the loop's core where cores are few."""

    def __init__(self) -> None:
        self._steps: SimpleQueue[tuple[ssl.SSLObject, asyncio.AbstractEventLoop, IsOver, OnStep]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def step(self, side: ssl.SSLObject, is_over: IsOver, then: OnStep) -> None:
        """Goes on with the handshake, then calls ``then`` on the loop with what it raised.

        Nothing else may touch the object or its memory until then: they have no lock. A step is left out, and ``then`` is not called,
        where ``is_over`` says that the connection has ended: those that come too fast end while they wait, and others wait behind them.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, name="ottla-handshakes", daemon=True)
            self._thread.start()
        self._steps.put((side, asyncio.get_running_loop(), is_over, then))

    def _go_on(self) -> None:
        while True:
            self._take(*self._steps.get())

    def _take(self, side: ssl.SSLObject, loop: asyncio.AbstractEventLoop, is_over: IsOver, then: OnStep) -> None:
        """Takes the step. What it was given is not held while the next one is waited for."""
        if is_over():
            return
        problem = try_step(side)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(then, problem)


def try_step(side: ssl.SSLObject) -> Exception | None:
    """Goes on with the handshake. Returns what it raised: SSLWantReadError where the peer has to say more."""
    try:
        side.do_handshake()
    except Exception as error:  # noqa: BLE001 - the thread serves the other connections, too
        return error.with_traceback(None)  # whose frames would hold what OpenSSL has
    return None
