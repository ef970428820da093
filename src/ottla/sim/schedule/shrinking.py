"""The smallest schedule that still fails, by leaving out parts of it.

Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002 (ddmin).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Returns items with which it still fails, in order, none of which can be left out alone. All items together must fail."""
    kept, parts = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        without = next((rest for rest in _without_each(kept, size) if fails(rest)), None)
        if without is not None:
            kept, parts = without, max(2, parts - 1)
        elif size == 1:
            break
        else:
            parts = min(len(kept), parts * 2)
    return [] if len(kept) == 1 and fails([]) else kept


def _without_each(items: list[T], size: int) -> list[list[T]]:
    return [items[:at] + items[at + size :] for at in range(0, len(items), size)]
