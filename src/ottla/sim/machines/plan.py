"""What a seed means: how many replicas, which faults exist at all (swarm), and when each one happens.

A plan is data, so that one that finds a violation is made smaller by leaving faults out, and kept as a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from ottla.sim.schedule.fault import LINK_KINDS, Kind, ScheduledFault

CHAOS_MS: Final = 3_000
"""From then on nothing fails, and the cluster has to recover. Timeouts are a third of Kafka's (see ``world``)."""

ALL: Final = "*"
LEADER: Final = "leader"
"""The node that leads when the fault happens."""
KINDS: Final = (
    *(Kind.KILL, Kind.POWER, Kind.PAUSE, Kind.CUT, Kind.DARK, Kind.SPLIT, Kind.BLACKOUT, Kind.LOSS, Kind.DISK_SLOW, Kind.SLOW),
    *(Kind.SNAPSHOT, Kind.RESTART, Kind.BREAK, Kind.REFUSE),
)


def host_of(node: int) -> str:
    return f"node-{node}"


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    voters: int
    observers: int
    faults: tuple[ScheduledFault, ...]
    duplicates: bool
    append_ms: int
    """The mean time between two appends of the client; bursts come on top."""


def plan_of(seed: int) -> Plan:
    """Draws the plan of the seed."""
    rng = Random(seed * 2 + 1)
    voters = rng.choice((3, 3, 3, 3, 3, 3, 3, 5, 5, 1, 2, 4))
    observers = rng.choice((0, 0, 0, 1))
    kinds = rng.sample(KINDS, rng.randint(1, 5))
    rate = rng.choice((3, 6, 12))
    faults = tuple(sorted((_fault(rng, kinds, voters, observers) for _ in range(rng.randint(1, rate))), key=lambda fault: fault.at_ms))
    if voters > 2 and rng.random() < 0.08:  # one dead link, and nothing else: it must not depose a leader
        source, target = rng.choice((LEADER, host_of(1))), host_of(rng.randint(2, voters))
        faults = (ScheduledFault(700, Kind.CUT, source, target, CHAOS_MS),)
    elif voters > 2 and rng.random() < 0.15:  # one leader after the other goes before it has sent all that it has written
        ways = (Kind.SPLIT, Kind.DARK, Kind.KILL, Kind.POWER)
        faults = tuple(
            ScheduledFault(at_ms, rng.choice(ways), LEADER, for_ms=rng.choice((100, 250, 500, 900)))
            for at_ms in range(350, CHAOS_MS - 100, rng.choice((90, 160, 250)))
        )
    return Plan(seed, voters, observers, faults, rng.random() < 0.3, rng.choice((60, 150, 400)))


def _fault(rng: Random, kinds: list[Kind], voters: int, observers: int) -> ScheduledFault:
    count = voters + observers
    host = LEADER if rng.random() < 0.4 else host_of(rng.randint(1, count))
    at_ms, kind, peer = rng.randrange(100, CHAOS_MS - 200), rng.choice(kinds), host_of(rng.randint(1, count))
    for_ms, by = rng.choice((10, 60, 200, 450, 800, 1300)), 0.0
    match kind:
        case Kind.LOSS:
            host, by = ALL, rng.choice((0.05, 0.3))
        case Kind.SLOW:
            host, peer, by = ALL, ALL, rng.choice((20, 150))
        case Kind.DISK_SLOW:
            by = rng.choice((20, 250))
        case _:
            pass
    return ScheduledFault(at_ms, kind, host, peer if kind in (*LINK_KINDS, Kind.BREAK) else "", for_ms, by)
