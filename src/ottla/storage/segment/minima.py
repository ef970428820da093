"""A growing list of numbers in which the next one below a bound is found without a look at those between.

There are levels over the numbers: each number of one is the smallest of ``_SHARE`` of the level below it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

_SHARE: Final = 32


class Minima:
    """``levels[0]`` are the numbers themselves, of 64 bits."""

    __slots__ = ("_levels",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        levels = [array("q", numbers)]
        while len(levels[-1]) > _SHARE:
            last = levels[-1]
            levels.append(array("q", (min(last[at : at + _SHARE]) for at in range(0, len(last), _SHARE))))
        self._levels = levels

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, number: int) -> None:
        self._levels[0].append(number)
        at = len(self._levels[0]) - 1
        for below, level in zip(self._levels, self._levels[1:]):
            at //= _SHARE
            if at == len(level):
                level.append(min(below[at * _SHARE :]))
            elif number < level[at]:
                level[at] = number
        top = self._levels[-1]
        if len(top) > _SHARE:
            self._levels.append(array("q", (min(top[:_SHARE]), min(top[_SHARE:]))))

    def truncate(self, count: int) -> None:
        """Keeps the first ``count``."""
        levels = self._levels
        for depth, level in enumerate(levels):
            del level[count:]
            if depth and level:
                level[-1] = min(levels[depth - 1][(count - 1) * _SHARE :])
            count = -(-count // _SHARE)
        while len(levels) > 1 and len(levels[-2]) <= _SHARE:
            levels.pop()

    def below(self, bound: int, start: int) -> Iterator[int]:
        """Yields where numbers smaller than ``bound`` are, from the index ``start`` on."""
        at = self._next_below(bound, start)
        while at is not None:
            yield at
            at = self._next_below(bound, at + 1)

    def _next_below(self, bound: int, at: int) -> int | None:
        levels, depth = self._levels, 0
        while True:
            level = levels[depth]
            while at < len(level) and not level[at] < bound:
                at += 1
                if at % _SHARE == 0 and depth + 1 < len(levels):
                    break
            else:
                if at >= len(level):
                    return None
                if depth == 0:
                    return at
                depth, at = depth - 1, at * _SHARE  # one of these it is
                continue
            depth, at = depth + 1, at // _SHARE  # none of those that are left here: whole shares are passed over
