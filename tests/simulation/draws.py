"""Schedules for a cluster, from a seed: one trouble after the other, so that a majority is left, and disks and services beside them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.explorer import WORK_MS
from tests.simulation.failing_disks import DIRECTORIES, FILES, KILLED, ONCE, ONE_OF, REPLACED, STOPPED
from tests.simulation.quorum_nodes import NODES

from ottla.sim.exchanges import Moment
from ottla.sim.schedule.fault import Kind, ScheduledFault, Trigger

NAMES: Final = tuple(f"node-{node}" for node in range(1, NODES + 1))
CONTROLLER: Final = "controller"
ZOOKEEPER: Final = "zookeeper"
BEGIN_MS: Final = 8_000
MORE_MS: Final = 120_000
"""So much longer a run may go on that has had too little."""
LASTS_MS_MAX: Final = 6_000
NOTICED_MS: Final = 4_000
"""A disk that fails is mostly noticed before."""
SLOW_OPERATIONS: Final = ("append", "truncate", "sync", "create", "sync_dir", "rename")
SLOW_SUFFIXES: Final = (".log", ".log", ".log", "", "checkpoint.tmp")
SLOW_MS: Final = (30, 150, 600, 3000)
Faults = list[ScheduledFault]
Draw = Callable[[random.Random, int, str], Faults]
"""A trouble that begins at a time in milliseconds, with a node."""


def one_by_one(
    rng: random.Random,
    draws: Sequence[Draw],
    *,
    begin_ms: int = BEGIN_MS,
    end_ms: int = WORK_MS + MORE_MS,
    pause_ms: tuple[int, int] = (500, 3000),
    names: Sequence[str] = NAMES,
) -> Faults:
    """Each trouble begins when the one before has ended, and a pause."""
    faults: Faults = []
    at_ms = begin_ms
    while at_ms < end_ms:
        found = rng.choice(draws)(rng, at_ms, rng.choice(names))
        faults += found
        at_ms = max(fault.at_ms + fault.for_ms for fault in found) + rng.randint(*pause_ms)
    return faults


def lasting(kind: Kind, durations_ms: Sequence[int] = ()) -> Draw:
    """One fault of one node, for one of these times, or for any."""

    def draw(rng: random.Random, at_ms: int, node: str) -> Faults:
        return [ScheduledFault(at_ms, kind, node, for_ms=rng.choice(durations_ms) if durations_ms else _for(rng))]

    return draw


def _for(rng: random.Random) -> int:
    return rng.randint(100, LASTS_MS_MAX)


def _others(node: str) -> list[str]:
    return [name for name in NAMES if name != node]


def dies(rng: random.Random, at_ms: int, node: str) -> Faults:
    return [ScheduledFault(at_ms, Kind.KILL, node, for_ms=rng.choice([20, _for(rng)]))]


def loses_power(rng: random.Random, at_ms: int, node: str) -> Faults:
    return [ScheduledFault(at_ms, Kind.POWER, node, for_ms=rng.choice([20, _for(rng)]))]


def is_not_heard(rng: random.Random, at_ms: int, node: str) -> Faults:
    for_ms = _for(rng)
    return [ScheduledFault(at_ms, Kind.CUT, node, other, for_ms) for other in _others(node)]


def is_rejected(rng: random.Random, at_ms: int, node: str) -> Faults:
    """By a firewall between another node and this one."""
    other = rng.choice(_others(node))
    return [ScheduledFault(at_ms, Kind.REFUSE, other, node, _for(rng)), ScheduledFault(at_ms, Kind.BREAK, other, node)]


def is_reset(rng: random.Random, at_ms: int, node: str) -> Faults:
    """By a proxy between another node and this one."""
    return [ScheduledFault(at_ms, Kind.BREAK, rng.choice(_others(node)), node, _for(rng))]


def is_reset_and_paused(rng: random.Random, at_ms: int, node: str) -> Faults:
    return [ScheduledFault(at_ms, Kind.PAUSE, node, for_ms=_for(rng)), ScheduledFault(at_ms, Kind.BREAK, rng.choice(_others(node)), node)]


def is_slow_and_dies(rng: random.Random, at_ms: int, node: str) -> Faults:
    """What it told its clients others hear of later."""
    lead_ms, for_ms = rng.randint(500, 1500), rng.choice([20, _for(rng)])
    links = [link for other in _others(node) for link in ((node, other), (other, node))]
    slow = [ScheduledFault(at_ms, Kind.SLOW, *link, lead_ms + for_ms, rng.randint(20, 300)) for link in links]
    return [*slow, ScheduledFault(at_ms + lead_ms, Kind.KILL, node, for_ms=for_ms)]


def all_die(rng: random.Random, at_ms: int, last: str) -> Faults:
    """One after the other: the last one has everything. Two return before it, and one of them may have lost what it had."""
    first, second = rng.sample(_others(last), 2)
    deaths = {first: at_ms, second: at_ms + rng.randint(300, 2000)}
    deaths[last] = deaths[second] + rng.randint(0, 100)
    back_ms, faults = deaths[last], []
    for node in [*rng.sample([first, second], 2), last]:
        back_ms += rng.randint(50, 1000)
        kind = Kind.POWER if node == second else Kind.KILL
        faults.append(ScheduledFault(deaths[node], kind, node, for_ms=back_ms - deaths[node]))
    return faults


def all_die_at_once(rng: random.Random, at_ms: int, _: str) -> Faults:
    kind, for_ms, faults = rng.choice([Kind.KILL, Kind.POWER]), 0, []
    for node in rng.sample(NAMES, NODES):
        for_ms += rng.choice([0, rng.randint(0, 2000)])
        faults.append(ScheduledFault(at_ms, kind, node, for_ms=for_ms))
    return faults


ANY_NODES: Final = (
    *(dies, loses_power, lasting(Kind.PAUSE), lasting(Kind.DARK), is_not_heard, is_rejected, is_reset, is_reset_and_paused),
    is_slow_and_dies,
)
"""What befalls a node of any cluster."""
DEADLY: Final = (dies, loses_power, is_slow_and_dies, all_die)
"""What changes leaders, and what they have written."""
REPLICATED: Final = (*ANY_NODES, lasting(Kind.RESTART, range(50, 3000)), all_die)


# Moments

EXCHANGES: Final = (
    *("FETCH", "FETCH", "FETCH", "ALTER_PARTITION", "BROKER_HEARTBEAT", "API_VERSIONS", "BROKER_REGISTRATION", "LIST_OFFSETS"),
    *("ENVELOPE", "VOTE", "BEGIN_QUORUM_EPOCH"),
)
"""Of brokers with each other."""
ASKED: Final = ("PRODUCE", "OFFSET_COMMIT", "DELETE_RECORDS", "ALTER_PARTITION_REASSIGNMENTS", "ELECT_LEADERS", "METADATA")
"""By clients."""
OPERATIONS: Final = (("append", ".log"), ("append", ".log"), ("sync", ".log"), ("truncate", ".log"), ("rename", ""), ("create", ""))
OFTEN: Final = frozenset({"FETCH", "PRODUCE", "METADATA", "BROKER_HEARTBEAT", "append", "sync"})
NTH_MAX: Final = 30


def at_a_moment(rng: random.Random, at_ms: int, node: str) -> Faults:
    """Something begins in the last instant before an exchange, or before an operation of a disk."""
    other = rng.choice(_others(node))
    match rng.randrange(3):
        case 0:
            operation, suffix = rng.choice(OPERATIONS)
            when = Trigger(_nth(rng, operation), operation, host=node, suffix=suffix)
        case 1:
            api = rng.choice(ASKED)
            when = Trigger(_nth(rng, api), api, rng.choice([Moment.RECEIVED, Moment.ANSWERED]), peer=node)
        case _:
            api = rng.choice(EXCHANGES)
            when = Trigger(_nth(rng, api), api, rng.choice(list(Moment)), *rng.choice([(node, other), (other, node)]))
    kind = rng.choice([Kind.KILL, Kind.KILL, Kind.POWER, Kind.PAUSE, Kind.CUT])
    peer = other if kind is Kind.CUT else ""
    return [ScheduledFault(at_ms, kind, node, peer, rng.choice([20, rng.randint(100, 3000)]), when=when)]


def _nth(rng: random.Random, what: str) -> int:
    return rng.randrange(1, NTH_MAX if what in OFTEN else 4)


# Disks


def no_faults(_: random.Random) -> Faults:
    """Disks are well."""
    return []


def is_slow(rng: random.Random, at_ms: int, node: str) -> Faults:
    """In all it does."""
    share, by = rng.randint(2, 30), rng.choice(SLOW_MS)
    return [ScheduledFault(at_ms, Kind.DISK_SLOW, node, for_ms=rng.randint(200, 4000), by=by, of=f"{share}%")]


def has_slow_operations(rng: random.Random, at_ms: int, node: str) -> Faults:
    for_ms = rng.randint(200, 2000)
    return [
        ScheduledFault(
            at_ms, Kind.DISK_SLOW, node, for_ms=for_ms, by=rng.randint(10, rng.choice(SLOW_MS)),
            of=f"{rng.choice(SLOW_OPERATIONS)}:{rng.choice(SLOW_SUFFIXES)}",
        )
        for _ in range(rng.randrange(1, 6))
    ]  # fmt: skip


def is_out_of_room(rng: random.Random, at_ms: int, node: str) -> Faults:
    return [ScheduledFault(at_ms, Kind.DISK_ROOM, node, for_ms=rng.randint(500, 8000), by=rng.randrange(2000))]


def lets_go_slowly(rng: random.Random, at_ms: int, node: str) -> Faults:
    """Of replicas: their directories are renamed before they are deleted."""
    for_ms = rng.randint(500, 4000)
    return [
        ScheduledFault(at_ms, Kind.DISK_SLOW, node, for_ms=for_ms, by=rng.randint(100, 4000), of=f"rename:-{index}") for index in range(3)
    ]  # fmt: skip


def disks_of_moved(rng: random.Random) -> Faults:
    """As those of ``disks_of``, and slow to let go."""
    return disks_of(rng) + one_by_one(rng, [lets_go_slowly], end_ms=WORK_MS, pause_ms=(0, 1000))


def disks_of(rng: random.Random) -> Faults:
    """Disks that are slow in all, slow in one operation, or full."""
    draws = (is_slow, has_slow_operations, has_slow_operations, is_out_of_room)
    return one_by_one(rng, draws, end_ms=WORK_MS, pause_ms=(100, 2000))


def _fails(*ways: str, of: Sequence[str] = ("",)) -> Draw:
    def draw(rng: random.Random, at_ms: int, node: str) -> Faults:
        more = [way for way in (STOPPED, REPLACED) if rng.random() < 0.5]
        return [
            ScheduledFault(
                at_ms, Kind.DISK_FAILS, node, for_ms=NOTICED_MS + rng.randrange(2000),
                where=rng.choice(DIRECTORIES), of=rng.choice(of), ways=frozenset([*ways, *more]),
            )
        ]  # fmt: skip

    return draw


def _is_full(*ways: str) -> Draw:
    def draw(rng: random.Random, at_ms: int, node: str) -> Faults:
        where = rng.choice(["", *DIRECTORIES])
        return [ScheduledFault(at_ms, Kind.DISK_FULL, node, for_ms=_for(rng), where=where, ways=frozenset(ways))]

    return draw


def _fails_out_of_reach(rng: random.Random, at_ms: int, node: str) -> Faults:
    """Its broker cannot say so for a while."""
    return [ScheduledFault(at_ms, Kind.CUT, node, ZOOKEEPER, rng.randint(500, LASTS_MS_MAX)), *_fails()(rng, at_ms, node)]


FAILING_DISKS: Final = (
    *(_fails(), _fails(KILLED), _fails(KILLED, of=[f"read_file:{file}" for file in FILES])),
    *(_fails(ONCE, of=[f"{operation}:" for operation in ONE_OF]), _is_full(), _is_full(KILLED), _fails_out_of_reach),
)


def is_damaged(rng: random.Random, at_ms: int, node: str) -> Faults:
    return [ScheduledFault(at_ms, Kind.DAMAGE, node, for_ms=rng.randint(100, 1000), by=rng.choice([1, 1, 3]))]


# ZooKeeper


def _service(kind: Kind, lasts_ms: tuple[int, int]) -> Draw:
    return lambda rng, at_ms, _: [ScheduledFault(at_ms, kind, ZOOKEEPER, for_ms=rng.randint(*lasts_ms))]


def _host(rng: random.Random, node: str) -> str:
    """The controller's half of the time: what happens to it is what matters most."""
    return CONTROLLER if rng.random() < 0.5 else node


def service_of(rng: random.Random) -> Faults:
    """The service is away, a host does not reach it, a session ends, answers are lost."""
    draws: tuple[Draw, ...] = (
        _service(Kind.KILL, (100, LASTS_MS_MAX)),
        lambda rng, at_ms, node: [ScheduledFault(at_ms, Kind.CUT, _host(rng, node), ZOOKEEPER, _for(rng))],
        lambda rng, at_ms, node: [ScheduledFault(at_ms, Kind.EXPIRE, _host(rng, node))],
        _service(Kind.LOSE, (10, 1000)),
    )
    return one_by_one(rng, draws, end_ms=WORK_MS, pause_ms=(500, 4000))
