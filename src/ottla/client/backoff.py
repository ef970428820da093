"""How long a client waits before it asks again."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.ports import World


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses before the next try: doubling, with a fifth of jitter."""

    first_ms: int = 50
    last_ms: int = 1000

    def delay_ms(self, attempt: int, world: World) -> float:
        base = min(self.last_ms, self.first_ms << min(attempt, 20))
        return base * (0.8 + 0.4 * world.random.random())
