"""Schedules from a seed. Each seed first draws which kinds of faults there are at all (swarm testing): runs that have few kinds reach
states that runs with all of them disturb. Source: Groce et al., "Swarm Testing", ISSTA 2012.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from ottla.sim.schedule.fault import LINK_KINDS, NODE_KINDS, Kind, ScheduledFault

KIND_PROBABILITY: Final = 0.4
FAULTS_MAX: Final = 20
LASTS_MS_MAX: Final = 2500


SWARM: Final = (
    *(Kind.KILL, Kind.POWER, Kind.RESTART, Kind.PAUSE, Kind.DARK, Kind.BREAK, Kind.DISK_FULL, Kind.DRIFT, Kind.CLOCK),
    *(Kind.CUT, Kind.REFUSE, Kind.SLOW, Kind.CLOG),
)
"""Those that any node and its clients may meet."""


def draw_kinds(rng: random.Random, kinds: Sequence[Kind] = SWARM) -> list[Kind]:
    """Draws the kinds of fault that exist in this run; at least one."""
    return [kind for kind in kinds if rng.random() < KIND_PROBABILITY] or [rng.choice(kinds)]


def draw_schedule(
    rng: random.Random, *, nodes: Sequence[str], others: Sequence[str], links: Sequence[tuple[str, str]], ms: int
) -> list[ScheduledFault]:
    """Draws faults within that many milliseconds, in order. ``others`` are hosts without a node: nothing kills what runs there."""
    chosen = draw_kinds(rng)
    hosts = {kind: nodes if kind in NODE_KINDS else [*nodes, *others] for kind in SWARM}
    faults = []
    for _ in range(rng.randrange(3, FAULTS_MAX + 1)):
        kind = rng.choice(chosen)
        host, peer = rng.choice(links) if kind in LINK_KINDS else (rng.choice(hosts[kind]), "")
        faults.append(_draw(rng, kind, host, peer, ms))
    return sorted(faults, key=lambda fault: fault.at_ms)


def _draw(rng: random.Random, kind: Kind, host: str, peer: str, ms: int) -> ScheduledFault:
    lasts = 0 if kind is Kind.BREAK else rng.randrange(20, rng.choice((200, LASTS_MS_MAX)))
    by = 0.0
    match kind:
        case Kind.SLOW:
            by = float(rng.randrange(5, 500))
        case Kind.DRIFT:
            by = rng.choice((0.5, 0.9, 0.99, 1.01, 1.1, 2.0))
        case Kind.CLOCK:
            by = float(rng.randrange(-5000, 5000) or 1)
        case _:
            pass
    return ScheduledFault(rng.randrange(ms), kind, host, peer, lasts, by)
