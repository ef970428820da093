"""What a seed means: how many replicas, which faults exist at all (swarm), and when each one happens.

A plan is data, so that one that finds a violation can be made smaller by leaving faults out, and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

CHAOS_MS: Final = 3_000
"""From then on nothing fails, and the cluster has to recover. Timeouts are a third of Kafka's (see ``world``)."""

KINDS: Final = (
    "kill",
    "power",
    "pause",
    "cut",
    "isolate",
    "split",
    "blackout",
    "loss",
    "slow-disk",
    "slow-net",
    "snapshot",
    "stop",
    "break",
    "refuse",
)
LEADER: Final = 0
"""In place of a node: the one that leads when the fault happens."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to a replica, or to the way from it to another one, and how long it lasts."""

    at_ms: int
    kind: str
    node: int
    other: int
    for_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    voters: int
    observers: int
    faults: tuple[Fault, ...]
    duplicates: bool
    append_ms: int
    """The mean time between two appends of the client; bursts come on top."""


def plan_of(seed: int) -> Plan:
    """The plan that this seed stands for."""
    rng = Random(seed * 2 + 1)
    voters = rng.choice((3, 3, 3, 3, 3, 3, 3, 5, 5, 1, 2, 4))
    observers = rng.choice((0, 0, 0, 1))
    kinds = rng.sample(KINDS, rng.randint(1, 5))
    rate = rng.choice((3, 6, 12))
    faults = tuple(sorted((_fault(rng, kinds, voters, observers) for _ in range(rng.randint(1, rate))), key=lambda fault: fault.at_ms))
    if voters > 2 and rng.random() < 0.08:  # one dead link, and nothing else: it must not depose a leader
        faults = (Fault(700, "cut", rng.choice((LEADER, 1)), rng.randint(2, voters), CHAOS_MS),)
    elif voters > 2 and rng.random() < 0.15:  # one leader after the other goes before it has sent all that it has written
        faults = tuple(
            Fault(
                at_ms, rng.choice(("split", "isolate", "kill", "power")), LEADER, rng.randint(1, voters), rng.choice((100, 250, 500, 900))
            )
            for at_ms in range(350, CHAOS_MS - 100, rng.choice((90, 160, 250)))
        )
    return Plan(seed, voters, observers, faults, rng.random() < 0.3, rng.choice((60, 150, 400)))


def _fault(rng: Random, kinds: list[str], voters: int, observers: int) -> Fault:
    count = voters + observers
    node = LEADER if rng.random() < 0.4 else rng.randint(1, count)
    for_ms = rng.choice((10, 60, 200, 450, 800, 1300))
    return Fault(rng.randrange(100, CHAOS_MS - 200), rng.choice(kinds), node, rng.randint(1, count), for_ms)
