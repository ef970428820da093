"""Explores replicated nodes over many seeds, and says what they met, and every finding with its seed.

``python -m tests.simulation.replicated_seeds --count N [--first SEED] [--jobs 3]`` exits with 1 when there was a finding, or when
something that matters was never met. Of the ``runs`` it says how many had enough content to say anything.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from tests.simulation.replicated_nodes import explore_replication
from tests.simulation.seeds import main

RARE: Final = (
    "active controller killed",
    "broker_fenced",
    "commits",
    "controller_active",
    "isr_changed",
    "moves begun",
    "moves taken back",
    "power lost by one of those that die together",
    "records deleted everywhere",
    "records not deleted: NOT_LEADER_OR_FOLLOWER",
    "records not deleted: REQUEST_TIMED_OUT",
    "records read",
    "replica_truncated",
    "trouble: power cut",
    "trouble: stopped",
    "unclean_leader_elected",
)
"""What many seeds together must have met: otherwise they say nothing about it."""


def try_seed(seed: int) -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, and what it met."""
    try:
        found = explore_replication(seed)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of a node may show in any way
        return seed, [repr(error)], Counter(runs=1)
    return seed, found.findings, found.states + Counter(runs=1)


if __name__ == "__main__":
    sys.exit(main("tests.simulation.replicated_seeds", try_seed, RARE))
