"""Hunts for a time over seeds of the crowd, and says what met what, and every finding with its seed.

``python -m tests.simulation.crowd --seconds N [--first SEED] [--jobs 3]`` exits with 1 when there was a finding, or when a meeting
that matters was never reached.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

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
    "event segment_damaged",
    "event log_cleaned",
    "event replica_moved",
    "event partition_offline",
)
"""Meetings without which a hunt over many seeds has not looked where mistakes were."""


def never_reached(meetings: Counter[str]) -> list[str]:
    return [kind for kind in IMPORTANT if not meetings[kind]]


def try_seed(seed: int) -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, and its meetings."""
    try:
        outcome = explore_crowd(seed)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of the broker may show in any way
        return seed, [repr(error)], Counter(runs=1)
    return seed, outcome.findings, outcome.meetings + Counter(runs=1, acknowledged=outcome.acknowledged)


def seeds_for(seconds: float, first: int) -> Iterator[int]:
    """One seed after the other until the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield first
        first += 1


def hunt(seeds: Iterable[int], jobs: int) -> tuple[int, Counter[str]]:
    """The number of seeds with findings, each of which is printed, and what met what."""
    found, meetings = 0, Counter[str]()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        waiting = []
        for seed in seeds:
            waiting.append(pool.apply_async(try_seed, (seed,)))
            while len(waiting) > jobs:
                found += _tell(waiting.pop(0).get(), meetings)
        for result in waiting:
            found += _tell(result.get(), meetings)
    return found, meetings


def _tell(result: tuple[int, list[str], Counter[str]], meetings: Counter[str]) -> bool:
    seed, findings, met = result
    meetings.update(met)
    for finding in findings[:4]:
        sys.stdout.write(f"seed {seed}: {finding}\n")
        sys.stdout.flush()
    return bool(findings)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.crowd")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    found, meetings = hunt(seeds_for(options.seconds, options.first), options.jobs)
    for kind, count in sorted(meetings.items()):
        sys.stdout.write(f"{count:9} {kind}\n")
    missing = never_reached(meetings)
    sys.stdout.write(f"{meetings['runs']} seeds, {found} with findings; never reached: {missing or 'nothing'}\n")
    return int(bool(found or missing))


if __name__ == "__main__":
    sys.exit(main())
