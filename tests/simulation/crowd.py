"""Hunts for a time over seeds of the crowd, and says what met what, and every finding with its seed.

``python -m tests.simulation.crowd --seconds N [--first SEED] [--jobs 3]`` exits with 1 when there was a finding, or when a meeting
that matters was never reached.
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.simulation.seeds import main

from ottla.sim.crowd.run import explore_crowd

IMPORTANT = (
    "deletion of a topic during CLEAN_JOB",
    "deletion of a topic during SCRUB_JOB",
    "deletion of a topic during COPY_JOB",
    "retention during CLEAN_JOB",
    "retention during SCRUB_JOB",
    "retention during COPY_JOB",
    "install after roll",
    "install after retention",
    "install during SCRUB_JOB",
    "install during COPY_JOB",
    "arrival of a move during CLEAN_JOB",
    "arrival of a move during SCRUB_JOB",
    "arrival of a move",
    "kill during CLEAN_JOB",
    "kill during COPY_JOB",
    "kill during install",
    "kill after arrival of a move",
    "kill after deletion of a topic",
    "kill after retention",
    "kill after roll",
    "power cut after arrival of a move",
    "power cut during CLEAN_JOB",
    "power cut during COPY_JOB",
    "power cut during install",
    "ENOSPC during CLEAN_JOB",
    "ENOSPC during COPY_JOB",
    "EMFILE during CLEAN_JOB",
    "EMFILE during COPY_JOB",
    "rot during CLEAN_JOB",
    "pause",
    "pause during CLEAN_JOB",
    "dark",
    "requests cut",
    "answers cut",
    "event segment_damaged",
    "event log_cleaned",
    "event replica_moved",
    "event partition_offline",
)
"""Meetings without which a hunt over many seeds has not looked where mistakes were."""


def try_seed(seed: int) -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, and its meetings."""
    try:
        outcome = explore_crowd(seed)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of the broker may show in any way
        return seed, [repr(error)], Counter(runs=1)
    return seed, outcome.findings, outcome.meetings + Counter(runs=1, acknowledged=outcome.acknowledged)


if __name__ == "__main__":
    sys.exit(main("tests.simulation.crowd", try_seed, IMPORTANT))
