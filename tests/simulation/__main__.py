"""The cluster simulator as a program.

``python -m tests.simulation KIND [--home zookeeper] [--first SEED] [--count N | --seconds N] [--jobs N]`` explores seeds of a kind, prints
each finding with its seed and the smallest schedule that leads to one, and what was met, counted; it exits with 1 when there was a finding,
or when many seeds have never met something that they must. ``--schedule FILE`` carries out a schedule that was kept. A run that is
interrupted (SIGINT) prints what it has counted until then.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.simulation.explorations import QUORUM
from tests.simulation.hunting import hunt, seeds_for
from tests.simulation.trying import KEYS, never_met, replay


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("kind", nargs="?", choices=sorted({kind for kind, _ in KEYS}))
    parser.add_argument("--home", default=QUORUM, choices=sorted({home for _, home in KEYS}))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, help="so many seeds, however long that takes")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--schedule", type=Path, help="a file of faults")
    options = parser.parse_args()
    if options.schedule is not None:
        findings = replay(options.schedule).findings
        sys.stdout.write("\n".join([*findings, f"{len(findings)} findings\n"]))
        return int(bool(findings))
    key = options.kind, options.home
    if key not in KEYS:
        parser.error(f"there is no {options.kind} in {options.home}, but {', '.join(map(' in '.join, KEYS))}")
    first, count = options.first, options.count
    seeds = seeds_for(options.seconds, first) if count is None else range(first, first + count)
    found, met = hunt(seeds, options.jobs, *key)
    for state, times in sorted(met.items()):
        sys.stdout.write(f"{times:9} {state}\n")
    missing = never_met(key, met)
    sys.stdout.write(f"{met['runs']} seeds, {found} with findings; never reached: {missing or 'nothing'}\n")
    return int(bool(found or missing))


if __name__ == "__main__":
    sys.exit(main())
