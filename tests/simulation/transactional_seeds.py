"""Explores ``transactional_nodes`` over many seeds, as ``replicated_seeds`` does its nodes; with ``--hard`` those of ``hard_transactions``.

``python -m tests.simulation.transactional_seeds --count N [--first SEED] [--jobs 3] [--hard]``
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.simulation.hard_transactions import explore_hard_transactions
from tests.simulation.quorum_nodes import Run
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


RARE_IN_HARD_ONES: Final = (
    "disks: full disk",
    "disks: slow disk",
    "disks: slow operations",
    "level 1 finalized",
    "level 2 finalized",
    "topics deleted in use",
    "transactions moved",
)


def try_seed(seed: int, explore: Callable[[int], Run] = explore_transactions) -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, and what it met."""
    try:
        found = explore(seed)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of a node may show in any way
        return seed, [repr(error)], Counter(runs=1)
    return seed, found.findings, found.states + Counter(runs=1)


if __name__ == "__main__":
    if "--hard" in sys.argv:
        sys.argv.remove("--hard")
        hard = partial(try_seed, explore=explore_hard_transactions)
        sys.exit(main("tests.simulation.transactional_seeds", hard, (*RARE, *RARE_IN_HARD_ONES)))
    sys.exit(main("tests.simulation.transactional_seeds", try_seed, RARE))
