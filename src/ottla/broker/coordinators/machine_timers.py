"""The timers of one machine, by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.machine import Timer
from ottla.ports import TimerHandle, World


class MachineTimers:
    """``on_due`` gets each timer when its time has come, unless it was ended or another one has replaced it."""

    def __init__(self, world: World, on_due: Callable[[Timer], None]) -> None:
        self._world = world
        self._on_due = on_due
        self._handles: dict[tuple[str, ...], TimerHandle] = {}

    def __contains__(self, name: tuple[str, ...]) -> bool:
        return name in self._handles

    def set(self, timer: Timer) -> None:
        self.end(timer.name)
        delay_ms = timer.deadline_ms - self._world.clock.now_ms()
        self._handles[timer.name] = self._world.timers.call_later_ms(max(0, delay_ms), lambda: self._come(timer))

    def end(self, name: tuple[str, ...]) -> None:
        """Ends the timer of that name, if there is one."""
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def end_all(self) -> Iterator[None]:
        """Ends one after the other, as the iterator is driven."""
        while self._handles:
            self._handles.popitem()[1].cancel()
            yield

    def _come(self, timer: Timer) -> None:
        del self._handles[timer.name]
        self._on_due(timer)
