"""Explores the nodes of ``hard_nodes`` over many seeds, as ``replicated_seeds`` does; ``--zookeeper`` explores them in that home.

``python -m tests.simulation.hard_seeds --count N [--first SEED] [--jobs 3] [--zookeeper]``
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from typing import Final

from tests.simulation.hard_nodes import explore_hard
from tests.simulation.seeds import main

RARE: Final = (
    "disks: full disk",
    "disks: slow disk",
    "disks: slow operations",
    "log_dir_full",
    "log_dir_has_room",
    "min.insync.replicas changed",
    "replica_truncated",
    "strangers",
    "topics deleted in use",
    "topics made",
    "written to a topic that goes",
)
"""What many seeds together must have met: otherwise they say nothing about it."""
RARE_IN_A_QUORUM: Final = ("eligible leader replicas: 0", "eligible leader replicas: 1", "min.insync.replicas of all changed")


def try_seed(seed: int, home: str = "quorum") -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, and what it met."""
    try:
        found = explore_hard(seed, home)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of a node may show in any way
        return seed, [repr(error)], Counter(runs=1)
    return seed, found.findings, found.states + Counter(runs=1)


if __name__ == "__main__":
    if "--zookeeper" in sys.argv:
        sys.argv.remove("--zookeeper")
        sys.exit(main("tests.simulation.hard_seeds", partial(try_seed, home="zookeeper"), RARE))
    sys.exit(main("tests.simulation.hard_seeds", try_seed, (*RARE, *RARE_IN_A_QUORUM)))
