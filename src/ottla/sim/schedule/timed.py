"""Faults at their times, and their text: one a line, as in

    # seed 17
    1200 kill node-2 for 500
    1500 cut node-1 -> node-2 for 800
    1800 slow node-1 -> node-2 for 1000 by 40
    2100 drift node-3 for 3000 by 1.05

Times are milliseconds: after the start of the run, and of how long the fault lasts. After "#" a line is a comment. Every fault ends by
itself, so that any of them can be left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """The kind of an event: it happens to a node, or, for a link, to what the node sends to another."""

    KILL = "kill"  # kill -9; booted again at the end
    POWER = "power"  # a power cut; booted again at the end
    RESTART = "restart"  # an orderly stop; started again at the end
    PAUSE = "pause"  # SIGSTOP, or a long collection of garbage
    DARK = "dark"  # nothing reaches the node, nothing comes from it
    BREAK = "break"  # its connections break
    DISK_FULL = "disk-full"
    DRIFT = "drift"  # its clocks go ``by`` times as fast
    CLOCK = "clock"  # its wall clock is ``by`` milliseconds off
    CUT = "cut"  # silence, in one direction
    REFUSE = "refuse"  # the other's firewall rejects
    SLOW = "slow"  # ``by`` milliseconds later
    CLOG = "clog"  # held, and then all at once


LINK_KINDS: Final = frozenset({Kind.CUT, Kind.REFUSE, Kind.SLOW, Kind.CLOG})
DEATHS: Final = frozenset({Kind.KILL, Kind.POWER, Kind.RESTART})
NODE_KINDS: Final = DEATHS | {Kind.DISK_FULL}
"""Those that only nodes have; the others happen to any host."""

_LINE: Final = re.compile(r"(\d+) ([a-z-]+) (\S+)(?: -> (\S+))?(?: for (\d+))?(?: by (-?[\d.]+))?")


@dataclass(frozen=True, slots=True)
class TimedFault:
    at_ms: int
    kind: Kind
    host: str
    peer: str = ""  # of a link: where it leads
    for_ms: int = 0
    by: float = 0.0

    def __str__(self) -> str:
        peer = f" -> {self.peer}" if self.peer else ""
        lasts = f" for {self.for_ms}" if self.for_ms else ""
        by = f" by {self.by:g}" if self.by else ""
        return f"{self.at_ms} {self.kind.value} {self.host}{peer}{lasts}{by}"


def parse_fault(line: str) -> TimedFault:
    """ValueError says what is wrong with the line."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r} is not of the form: MS KIND HOST [-> HOST] [for MS] [by NUMBER]")
    at_ms, name, host, peer, for_ms, by = found.groups()
    kind = next((kind for kind in Kind if kind.value == name), None)
    if kind is None:
        raise ValueError(f"{line!r}: there is no fault {name!r}, but {', '.join(kind.value for kind in Kind)}")
    if (kind in LINK_KINDS) != (peer is not None):
        raise ValueError(f"{line!r}: {name} is {'from one host -> to another' if kind in LINK_KINDS else 'of one host'}")
    return TimedFault(int(at_ms), kind, host, peer or "", int(for_ms or 0), float(by or 0))


def to_text(faults: Iterable[TimedFault], *comments: str) -> str:
    """A scenario file: the comments, then a fault a line."""
    return "".join([*(f"# {comment}\n" for comment in comments), *(f"{fault}\n" for fault in faults)])


def from_text(text: str) -> list[TimedFault]:
    """The faults of a scenario file. ValueError says which line is wrong."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [parse_fault(line) for line in lines if line]
