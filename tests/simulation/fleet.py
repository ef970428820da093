"""Hunts for a time over seeds of the fleet, and shrinks the schedule of what it finds; or carries out a schedule of a file.

``python -m tests.simulation.fleet --seconds N [--first SEED] [--jobs 2]`` exits with 1 when there was a finding, or when a state that
matters was never reached. ``python -m tests.simulation.fleet --replay FILE`` prints what the schedule of the file leads to.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.seeds import main

from ottla.sim.fleet.run import explore_fleet
from ottla.sim.schedule.shrinking import shrink
from ottla.sim.schedule.timed import TimedFault, from_text, to_text

IMPORTANT = (
    *("kill", "power", "restart", "pause", "dark", "break", "disk-full", "drift", "clock", "cut", "refuse", "slow", "clog"),
    "kill during pause",
    "pause during cut",
    "restart during pause",
    "power during disk-full",
    "death during start",
    "death during stop",
    "stop failed",
    "accepted, then reset",
    "data for a forgotten connection",
    "connecting ended with ConnectionRefusedError",
    "connecting ended with ConnectionResetError",
    "connecting ended with CancelledError",
    "event log_append_failed",
    "event log_cut",
)
"""States without which a hunt over many seeds has not looked where mistakes are."""


def findings_of(seed: int, schedule: Sequence[TimedFault] | None = None) -> tuple[list[str], list[TimedFault], Counter[str]]:
    """What the seed found, with which schedule, and what it met."""
    try:
        outcome = explore_fleet(seed, schedule)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - a mistake of the broker may show in any way
        return [repr(error)], list(schedule or ()), Counter(runs=1)
    return outcome.findings, outcome.schedule, outcome.states + Counter(runs=1, acknowledged=outcome.acknowledged)


def try_seed(seed: int) -> tuple[int, list[str], Counter[str]]:
    """The seed, what it found, with the smallest schedule that finds it, and what it met."""
    findings, schedule, states = findings_of(seed)
    if findings and schedule:
        smallest = shrink(schedule, lambda part: bool(findings_of(seed, part)[0]))
        findings = [findings[0] + "\n" + to_text(smallest, f"seed {seed}"), *findings[1:]]
    return seed, findings, states


def replay(path: Path) -> list[str]:
    """What the schedule of a scenario file leads to, with the seed that the file names."""
    text = path.read_text()
    seed = re.search(r"seed (\d+)", text)
    if seed is None:
        raise ValueError(f"{path} names no seed: the first line is '# seed NUMBER'")
    return explore_fleet(int(seed[1]), from_text(text)).findings


if __name__ == "__main__":
    if sys.argv[1:2] == ["--replay"]:
        found = replay(Path(sys.argv[2]))
        sys.stdout.write("\n".join([*found, f"{len(found)} findings\n"]))
        sys.exit(bool(found))
    sys.exit(main("tests.simulation.fleet", try_seed, IMPORTANT))
