"""Explores the nodes of ``transactional_nodes`` over many seeds, as ``replicated_seeds`` does.

``python -m tests.simulation.transactional_seeds --count N [--first SEED] [--jobs 3]``
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from tests.simulation.seeds import main
from tests.simulation.transactional_nodes import explore_transactions

RARE: Final = (
    "coordinators changed over a decision",
    "decisions for want of time",
    "producers fenced",
    "producers stalled",
    "replica_truncated",
    "transactions aborted",
    "transactions committed",
    "transactions lost to their time or a rival",
    "trouble: power cut",
)
"""What many seeds together must have met: otherwise they say nothing about it."""


def try_seed(seed: int) -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, and what it met."""
    try:
        found = explore_transactions(seed)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of a node may show in any way
        return seed, [repr(error)], Counter(runs=1)
    return seed, found.findings, found.states + Counter(runs=1)


if __name__ == "__main__":
    sys.exit(main("tests.simulation.transactional_seeds", try_seed, RARE))
