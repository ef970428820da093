"""Seeds that are tried, schedules that shrink when one fails, and files of schedules that failed once.

Such a file says in its first line whose schedule it is, as in ``# seed 17 of hard in zookeeper``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.simulation.explorations import EXPLORATIONS
from tests.simulation.explorer import Exploration, Run, explore

from ottla.sim.schedule.fault import ScheduledFault, from_text, to_text
from ottla.sim.schedule.shrinking import shrink

KEPT: Final = Path(__file__).parent / "schedules"
RUNS_MAX: Final = int(os.environ.get("OTTLA_SHRINK_RUNS", "100"))
"""So many runs a schedule is shrunk by at most."""
_NAME: Final = re.compile(r"# seed (\d+) of (\S+) in (\S+)")
Tried = tuple[int, list[str], Counter[str]]
"""A seed, what it found, and what it met."""


def try_seed(kind: str, home: str, seed: int) -> Tried:
    """The first finding has the smallest schedule that leads to one."""
    found = explore(EXPLORATIONS[kind, home], seed)
    if not found.findings:
        return seed, [], found.states
    faults = shrunk(EXPLORATIONS[kind, home], seed, found)
    text = to_text(faults, f"seed {seed} of {kind} in {home}")
    return seed, [f"{found.findings[0]}\n{text}", *found.findings[1:]], found.states


def shrunk(exploration: Exploration, seed: int, found: Run) -> list[ScheduledFault]:
    """The fewest faults that still lead to a finding, so far as ``RUNS_MAX`` runs tell; all where a repetition leads to none."""
    left = RUNS_MAX

    def fails(faults: Sequence[ScheduledFault]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and bool(explore(exploration, seed, faults).findings)

    return shrink(found.schedule, fails) if fails(found.schedule) else list(found.schedule)


def replay(path: Path) -> Run:
    """What the schedule of the file leads to. ValueError where it does not say whose it is."""
    text = path.read_text()
    named = _NAME.match(text)
    if named is None:
        raise ValueError(f"{path} does not begin with: # seed NUMBER of KIND in HOME")
    seed, kind, home = named.groups()
    if (kind, home) not in EXPLORATIONS:
        raise ValueError(f"{path}: there is no {kind} in {home}, but {', '.join(' in '.join(key) for key in EXPLORATIONS)}")
    return explore(EXPLORATIONS[kind, home], int(seed), from_text(text))


def never_reached(met: Counter[str], important: Iterable[str]) -> list[str]:
    return [state for state in important if not met[state]]
