"""Whether any broker can be reached and takes what is sent, for applications that want to say so, and for those that do not ask.

The client sends requests again while no broker answers; without a watch no application would see it. The watch looks twice a second,
and reconnects while nothing is to be sent. Where the application has set no watch, an outage is a warning of Python's logging.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock
from ottla.types import TopicPartition

# The standard library's: an application that has set up no logging sees warnings of it on standard error.
log = logging.getLogger("ottla.client")

WATCH_MS: Final = 500
WARNING_MS: Final = 1000
"""For so long no broker was reached when it is said. The next try comes at most 1.2 s after the last one."""
WARNED_ATTEMPTS: Final = 5
"""After so many a batch has waited for two to three seconds."""
OnConnectivity = Callable[[KafkaError | None], object]
"""Called with the reason when the last broker becomes unreachable, and with None when one is reachable again."""


def warn_of_attempts(partition: TopicPartition, attempts: int, left_ms: int, problem: KafkaError) -> None:
    """Warns of a batch that a broker has refused several times, and that is sent again: once for each batch. Outages are the watch's."""
    if attempts == WARNED_ATTEMPTS and problem.code != ErrorCode.NETWORK_EXCEPTION:
        log.warning(
            "what was sent to %s is not written yet, and the producer tries for another %d s: %s", partition, left_ms // 1000, problem
        )


async def watch(reach: Callable[[], Awaitable[object]], on_connectivity: OnConnectivity) -> None:
    """Runs until it is cancelled. ``reach`` raises when it reaches no broker; that one is reached is taken for granted at first."""
    is_reachable = True
    while True:
        try:
            await reach()
        except KafkaError as error:
            if is_reachable:
                _report(on_connectivity, error)
            is_reachable = False
        else:
            if not is_reachable:
                _report(on_connectivity, None)
            is_reachable = True
        await asyncio.sleep(WATCH_MS / 1000)


def _report(on_connectivity: OnConnectivity, error: KafkaError | None) -> None:
    """Calls the function. What it raises is logged, with what it was called with: no caller takes it, and the watch goes on."""
    try:
        on_connectivity(error)
    except Exception as problem:  # the application's edge
        what = "a broker can be reached again" if error is None else f"no broker can be reached: {error}"
        log.exception("on_connectivity raised %s: %s; it was called since %s", type(problem).__name__, problem, what)


class Outage:
    """The time in which the client tries to reach a broker and reaches none. It is logged once, and so is its end."""

    def __init__(self, clock: Clock, addresses: str) -> None:
        self._clock = clock
        self.addresses: Final = addresses
        self._since_ms: int | None = None
        self._attempts = 0  # under way
        self._timer: asyncio.TimerHandle | None = None
        self._is_logged = False
        self._problem: KafkaError | None = None
        self.is_watched = False  # the application says so itself

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Wraps an attempt to reach a broker, which raises KafkaError when there is none."""
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        self._attempts += 1
        if self._timer is None and not self._is_logged:
            # A machine that is switched off refuses nothing: the attempt itself may take longer than any caller waits.
            left_ms = max(0, self._since_ms + WARNING_MS - now_ms)
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._on_silence)
        try:
            yield
        except KafkaError as error:
            self._on_failure(error)
            raise
        else:
            self._end()
        finally:
            self._attempts -= 1
            if self._attempts == 0:
                self._stop_timer()

    def _on_failure(self, error: KafkaError) -> None:
        self._problem = error
        if self._since_ms is not None and self._clock.monotonic_ms() - self._since_ms >= WARNING_MS:
            self._say()

    def _on_silence(self) -> None:
        self._timer = None
        self._say()

    def _say(self) -> None:
        if self._is_logged or self.is_watched:
            return
        self._is_logged = True
        why = "no answer" if self._problem is None else str(self._problem)
        log.warning("no broker can be reached at %s, and the client keeps trying: %s", self.addresses, why)

    def _end(self) -> None:
        if self._is_logged:
            log.warning("a broker can be reached again at %s", self.addresses)
        self._is_logged, self._since_ms, self._problem = False, None, None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
