"""Commands that wait under a key for another decision, each at most so long from the first time that it was decided."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from ottla.machine import Park, Token
from ottla.ports import TimerHandle, World

WAIT_MS: Final = 1000
PARKED_MAX: Final = 10_000


class ParkedCommands:
    """The commands of one shard that wait. ``on_late`` gets the token of a command that has waited for too long, and its late reply."""

    def __init__(self, world: World, on_late: Callable[[Token, Any], None]) -> None:
        self._world = world
        self._on_late = on_late
        self._of_key: dict[str, dict[Token, Park]] = {}
        self._key_of: dict[Token, str] = {}
        self._due_ms: dict[Token, int] = {}  # of those that wait now, or did before: they do not get more time for it
        self._deadlines: list[tuple[int, Token]] = []  # a heap
        self._timer: TimerHandle | None = None

    def park(self, park: Park) -> None:
        """Parks the command. It is late at once when its time is over already, or too many wait."""
        token: Token = park.command.token
        now_ms = self._world.clock.monotonic_ms()
        due_ms = self._due_ms.get(token)
        if due_ms is None:
            due_ms = self._due_ms[token] = now_ms + WAIT_MS
            heapq.heappush(self._deadlines, (due_ms, token))
        if due_ms <= now_ms or len(self._key_of) >= PARKED_MAX:
            self._on_late(token, park.late)
            return
        self._of_key.setdefault(park.key, {})[token] = park
        self._key_of[token] = park.key
        self._look_at_next(now_ms)

    def wake(self, key: str) -> list[Any]:
        """Takes the commands that wait under the key, in the order in which they came."""
        woken = self._of_key.pop(key, {})
        for token in woken:
            del self._key_of[token]
        return [park.command for park in woken.values()]

    def forget(self, token: Token) -> None:
        """Forgets the command, which has its reply."""
        self._due_ms.pop(token, None)
        self._remove(token)

    def _remove(self, token: Token) -> Park | None:
        key = self._key_of.pop(token, None)
        if key is None:
            return None
        waiting = self._of_key[key]
        park = waiting.pop(token)
        if not waiting:
            del self._of_key[key]
        return park

    def close(self) -> None:
        """Stops all replies."""
        if self._timer is not None:
            self._timer.cancel()
        self._of_key.clear()
        self._key_of.clear()

    def _look_at_next(self, now_ms: int) -> None:
        if self._timer is None and self._deadlines:
            self._timer = self._world.timers.call_later_ms(max(0, self._deadlines[0][0] - now_ms), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._world.clock.monotonic_ms()
        while self._deadlines and (self._deadlines[0][0] <= now_ms or self._deadlines[0][1] not in self._due_ms):
            _, token = heapq.heappop(self._deadlines)
            park = self._remove(token)
            if park is not None:
                self._on_late(token, park.late)
        self._look_at_next(now_ms)
