"""Seeds that are tried, schedules that shrink when one fails, and files of schedules that failed once.

Such a file says in its first line whose schedule it is, as in ``# seed 17 of hard in zookeeper``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.simulation.explorations import EXPLORATIONS, QUORUM
from tests.simulation.explorer import Run, explore

from ottla.sim.machines.plan import plan_of
from ottla.sim.machines.run import explore_quorum, never_reached
from ottla.sim.schedule.fault import ScheduledFault, from_text, to_text
from ottla.sim.schedule.shrinking import shrink

KEPT: Final = Path(__file__).parent / "schedules"
RUNS_MAX: Final = int(os.environ.get("OTTLA_SHRINK_RUNS", "100"))
"""So many runs a schedule is shrunk by at most."""
Key = tuple[str, str]
"""A kind, and a home."""
MACHINES: Final = ("machines", QUORUM)
"""The machines of a quorum alone (``ottla.sim.machines``)."""
KEYS: Final = (*EXPLORATIONS, MACHINES)
_NAME: Final = re.compile(r"# seed (\d+) of (\S+) in (\S+)")
Tried = tuple[int, list[str], Counter[str]]
"""A seed, what it found, and what it met."""


def run_of(key: Key, seed: int, schedule: Sequence[ScheduledFault] | None = None) -> Run:
    """One run of the kind in the home."""
    if key != MACHINES:
        return explore(EXPLORATIONS[key], seed, schedule)
    plan = plan_of(seed) if schedule is None else replace(plan_of(seed), faults=tuple(schedule))
    outcome = explore_quorum(plan)
    return Run(list(outcome.findings), outcome.met, list(plan.faults), str(outcome.digest))


def try_seed(kind: str, home: str, seed: int) -> Tried:
    """The first finding has the smallest schedule that leads to one."""
    key = kind, home
    found = run_of(key, seed)
    if not found.findings:
        return seed, [], found.states
    faults = shrunk(lambda faults: run_of(key, seed, faults), found)
    text = to_text(faults, f"seed {seed} of {kind} in {home}")
    return seed, [f"{found.findings[0]}\n{text}", *found.findings[1:]], found.states


def shrunk(again: Callable[[Sequence[ScheduledFault]], Run], found: Run) -> list[ScheduledFault]:
    """The fewest faults that still lead to a finding, so far as ``RUNS_MAX`` runs tell; all where a repetition leads to none."""
    left = RUNS_MAX

    def fails(faults: Sequence[ScheduledFault]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and bool(again(faults).findings)

    return shrink(found.schedule, fails) if fails(found.schedule) else list(found.schedule)


def replay(path: Path) -> Run:
    """What the schedule of the file leads to. ValueError where it does not say whose it is."""
    text = path.read_text()
    named = _NAME.match(text)
    if named is None:
        raise ValueError(f"{path} does not begin with: # seed NUMBER of KIND in HOME")
    seed, kind, home = named.groups()
    if (kind, home) not in KEYS:
        raise ValueError(f"{path}: there is no {kind} in {home}, but {', '.join(map(' in '.join, KEYS))}")
    return run_of((kind, home), int(seed), from_text(text))


def never_met(key: Key, met: Counter[str]) -> list[str]:
    """What so many runs ought to have met, and have not."""
    if key == MACHINES:
        return never_reached(met)
    exploration = EXPLORATIONS[key]
    return [] if met["runs"] < exploration.many else [state for state in exploration.rare if not met[state]]
