"""Requests that wait for a deadline, or for what comes before it: one timer for all of them."""

from __future__ import annotations

from ottla.broker.part import Part
from ottla.broker.requests.context import fail_loudly
from ottla.ports import TimerHandle, World
from ottla.replication.purgatory import Purgatory, Waiter


class Parking(Part):
    """The purgatory of one broker, and its clock."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._timers = world.timers
        self._purgatory = Purgatory()
        self._sweep: TimerHandle | None = None

    def park(self, waiter: Waiter, wait_ms: int) -> None:
        """Calls ``waiter.expire()`` after ``wait_ms``, unless it is done by then."""
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        if self._purgatory.park(waiter, deadline_ms):
            self._schedule_sweep(deadline_ms)

    def unpark(self) -> None:
        """Notes that a waiter is done, by its deadline or before."""
        self._purgatory.done_early()

    async def stop(self) -> None:
        """Stops all expiry."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _schedule_sweep(self, deadline_ms: int) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        delay_ms = deadline_ms - self._clock.monotonic_ms()
        self._sweep = self._timers.call_later_ms(max(0, delay_ms), self._on_sweep)

    def _on_sweep(self) -> None:
        self._sweep = None
        for waiter in self._purgatory.expired(self._clock.monotonic_ms()):
            try:
                waiter.expire()
            except Exception as error:  # noqa: BLE001 - one waiter's mistake must not leave all others waiting for ever
                fail_loudly("expiry", error)
        deadline_ms = self._purgatory.next_deadline_ms()
        if deadline_ms is not None and self._sweep is None:
            self._schedule_sweep(deadline_ms)
