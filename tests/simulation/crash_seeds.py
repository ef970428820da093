"""Explores crash points: each seed is one of them, and goes round all of them, with another n-th exchange and other delays each time.

``python -m tests.simulation.crash_seeds --count N [--first SEED] [--jobs 3]``
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from tests.simulation.crash_points import all_points, explore_crash_point
from tests.simulation.seeds import main

POINTS: Final = tuple(all_points())
RARE: Final = ("died", "producers fenced", "transactions aborted", "transactions committed")
"""What many seeds together must have met: otherwise they say nothing about it."""


def try_seed(seed: int) -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, and what it met."""
    point = POINTS[seed % len(POINTS)]
    try:
        found = explore_crash_point(point, seed)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of a node may show in any way
        return seed, [f"{point}: {error!r}"], Counter(runs=1)
    return seed, [f"{point}: {finding}" for finding in found.findings], found.states + Counter(runs=1)


if __name__ == "__main__":
    sys.exit(main("tests.simulation.crash_seeds", try_seed, RARE))
