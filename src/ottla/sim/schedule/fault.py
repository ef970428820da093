"""Faults with the moments of their beginnings, and their text: one a line, as in

    # seed 17 of hard in zookeeper
    1200 kill node-2 for 500
    1500 cut node-1 -> node-2 for 800
    1800 slow node-1 -> node-2 for 1000 by 40
    2100 drift node-3 for 3000 by 1.05
    2500 disk-slow node-1 of append:.log for 900 by 300
    3000 disk-fails node-2 in /more for 1500 with replaced
    4000 when 3 END_TXN received: kill coordinator for 2000
    4000 when 2 FETCH answered node-2 -> node-1: power node-1 for 100
    4000 when 90 step node-1: pause node-1 for 300
    4000 when 4 append:.log node-1: kill node-1 for 300
    4000 when 3 step:after=install node-1: kill node-1 for 300
    9000 end clients

Times are milliseconds: after the start of the schedule, and of how long the fault lasts. A fault with a trigger waits, from its time on,
for the n-th exchange or disk operation of a kind that comes then, and starts in the last instant before it. A host may be named by its
role. After "#" a line is a comment. Every fault ends by itself, so that any of them can be left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.messages.api_keys import ApiKey
from ottla.sim.exchanges import Moment


class Kind(Enum):
    """The kind of a fault: it happens to a node, to any host, or, for a link, to what the host sends to another."""

    KILL = "kill"  # kill -9; booted again at the end
    POWER = "power"  # a power cut; booted again at the end. Where none may be, it is a kill
    RESTART = "restart"  # an orderly stop; started again at the end
    PAUSE = "pause"  # SIGSTOP, or a long collection of garbage
    DARK = "dark"  # nothing reaches the node, nothing comes from it
    BREAK = "break"  # its connections break, or those that it has opened to a peer
    DISK_FULL = "disk-full"  # writes are refused
    NO_FILES = "no-descriptors"  # files are not created
    DISK_FAILS = "disk-fails"  # everything is, or operations that are named
    DISK_ROOM = "disk-room"  # only ``by`` bytes are free
    DISK_SLOW = "disk-slow"  # some operations take up to ``by`` milliseconds longer
    DAMAGE = "damage"  # ``by`` of its replicas
    ROT = "rot"  # a bit of a closed segment
    SNAPSHOT = "snapshot"  # is taken
    SPLIT = "split"  # it and some others hear nothing of the rest
    BLACKOUT = "blackout"  # all lose power, and return one by one
    LOSS = "loss"  # of messages, with the probability ``by``
    DRIFT = "drift"  # its clocks go ``by`` times as fast
    CLOCK = "clock"  # its wall clock is ``by`` milliseconds off
    EXPIRE = "expire"  # its sessions with ZooKeeper end
    LOSE = "lose-answers"  # to what was asked of it
    LEAD = "lead"  # a broker leads the partition from now on
    CUT = "cut"  # silence, in one direction
    REFUSE = "refuse"  # the other's firewall rejects
    SLOW = "slow"  # ``by`` milliseconds later
    CLOG = "clog"  # held, and then all at once
    END = "end"  # of what clients do


LINK_KINDS: Final = frozenset({Kind.CUT, Kind.REFUSE, Kind.SLOW, Kind.CLOG})
DEATHS: Final = frozenset({Kind.KILL, Kind.POWER, Kind.RESTART})
NODE_KINDS: Final = DEATHS | {Kind.DISK_FULL}
"""Those that only nodes have; the others happen to any host."""
ANY_HOST: Final = "*"
STEP: Final = "step"
"""Any operation that changes a disk."""
AFTER: Final = "after="
"""In place of the end of a path, before the name of what must have been done: operations count from then on."""


_HOSTS: Final = r"(\S+?)(?: -> (\S+?))?"
_EXCHANGE: Final = re.compile(rf"when (\d+) ([A-Z_]+) (sent|received|answered)(?: {_HOSTS})?")
_OPERATION: Final = re.compile(r"when (\d+) ([a-z_]+)(?::(\S+))? (\S+)")
_LINE: Final = re.compile(
    r"(\d+)(?: (when [^#]+?):)? ([a-z-]+) (\S+)(?: -> (\S+))?(?: in (\S+))?(?: of (\S+))?(?: for (\d+))?(?: by (-?[\d.]+))?(?: with (\S+))?"
)


@dataclass(frozen=True, slots=True)
class Trigger:
    """The n-th request of an API at one moment between two hosts, or the n-th operation of a host's disk on paths that end so."""

    nth: int
    what: str
    moment: Moment | None = None  # of an exchange
    host: str = ANY_HOST
    peer: str = ANY_HOST
    suffix: str = ""

    def __str__(self) -> str:
        if self.moment is None:
            return f"when {self.nth} {self.what}{self.suffix and ':' + self.suffix} {self.host}"
        hosts = "" if self.host == self.peer == ANY_HOST else f" {self.host} -> {self.peer}"
        return f"when {self.nth} {self.what} {self.moment.value}{hosts}"


def parse_trigger(text: str) -> Trigger:
    if (found := _EXCHANGE.fullmatch(text)) is not None:
        nth, api, moment, host, peer = found.groups()
        if api not in ApiKey.__members__:
            raise ValueError(f"{text!r}: there is no API {api!r}, but {', '.join(ApiKey.__members__)}")
        return Trigger(int(nth), api, Moment(moment), host or ANY_HOST, peer or ANY_HOST)
    if (found := _OPERATION.fullmatch(text)) is not None:
        nth, operation, suffix, host = found.groups()
        return Trigger(int(nth), operation, host=host, suffix=suffix or "")
    raise ValueError(
        f"{text!r} is neither of the form: when N API sent|received|answered [HOST -> HOST], nor: when N OPERATION[:SUFFIX] HOST"
    )


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    at_ms: int
    kind: Kind
    host: str
    peer: str = ""  # of a link: where it leads
    for_ms: int = 0
    by: float = 0.0
    where: str = ""  # the directory
    of: str = ""  # the operation, and what the path ends with, after a colon
    ways: frozenset[str] = frozenset()
    when: Trigger | None = None

    def __str__(self) -> str:
        parts = [
            f"{self.at_ms}",
            *([f"{self.when}:"] if self.when else []),
            f"{self.kind.value} {self.host}",
            *([f"-> {self.peer}"] if self.peer else []),
            *([f"in {self.where}"] if self.where else []),
            *([f"of {self.of}"] if self.of else []),
            *([f"for {self.for_ms}"] if self.for_ms else []),
            *([f"by {self.by:g}"] if self.by else []),
            *([f"with {','.join(sorted(self.ways))}"] if self.ways else []),
        ]
        return " ".join(parts)


def parse_fault(line: str) -> ScheduledFault:
    """Parses a line. ValueError says what is wrong with it."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(
            f"{line!r} is not of the form: MS [when TRIGGER:] KIND HOST [-> HOST] [in DIRECTORY] [of OPERATION] [for MS] [by NUMBER] "
            "[with WAYS]"
        )
    at_ms, when, name, host, peer, where, of, for_ms, by, ways = found.groups()
    kind = next((kind for kind in Kind if kind.value == name), None)
    if kind is None:
        raise ValueError(f"{line!r}: there is no fault {name!r}, but {', '.join(kind.value for kind in Kind)}")
    if kind is not Kind.BREAK and (kind in LINK_KINDS) != (peer is not None):
        raise ValueError(f"{line!r}: {name} is {'from one host -> to another' if kind in LINK_KINDS else 'of one host'}")
    return ScheduledFault(
        int(at_ms),
        kind,
        host,
        peer or "",
        int(for_ms or 0),
        float(by or 0),
        where or "",
        of or "",
        frozenset(ways.split(",") if ways else ()),
        parse_trigger(when) if when else None,
    )


def to_text(faults: Iterable[ScheduledFault], *comments: str) -> str:
    """Writes a scenario file: the comments, then a fault a line."""
    return "".join([*(f"# {comment}\n" for comment in comments), *(f"{fault}\n" for fault in faults)])


def from_text(text: str) -> list[ScheduledFault]:
    """Reads the faults of a scenario file. ValueError says which line is wrong."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [parse_fault(line) for line in lines if line]
