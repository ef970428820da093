"""The voters of a metadata quorum, as its leader and their ports show them, and how many more may fail.

A leader knows of a voter what it last fetched: one whose process has ended is a follower to it for seconds. A port that refuses shows
that at once, but for an address that means another machine where it is asked from; so such a voter has ended where it does not fetch.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.cli.quorum_states import ENDED, SILENT, fetched_ms_ago, is_silent, leader_of
from ottla.cli.quorum_voters import refusing
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.admin import QuorumDescription
    from ottla.sync import Admin

FETCH_SECONDS_MAX: Final = 1.0
"""Twice as long as a voter that runs takes to fetch again."""
CLOCK_MS: Final = 5
"""By so much less the times of one fetch differ between two answers: the leader knows them by another clock than it shows them by."""


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of the metadata quorum. ``lag`` is in records; -1 where it is not known, and times are None there."""

    node_id: int
    lag: int
    is_silent: bool
    fetched_ms_ago: int | None = None
    lags_for_ms: int | None = None  # since when it has not had all records, by its last fetch
    has_ended: bool = False  # its port refuses, and it does not fetch
    cannot_reach: tuple[int, ...] = ()  # voters: nothing listens at the addresses that it has of them

    @property
    def state(self) -> str:
        """What is shown in place of the lag; empty where it follows."""
        return ENDED if self.has_ended else SILENT if self.is_silent else ""


def voters_of(quorum: QuorumDescription, fenced: Collection[int]) -> Iterator[Voter]:
    """Yields the voters by id."""
    end_offset = leader_of(quorum).end_offset
    for voter in sorted(quorum.voters, key=lambda voter: voter.node_id):
        lag = -1 if voter.end_offset < 0 else end_offset - voter.end_offset
        lags_for_ms = voter.last_fetch_ms - voter.last_caught_up_ms if voter.last_caught_up_ms >= 0 else None
        yield Voter(voter.node_id, lag, is_silent(quorum, voter, fenced), fetched_ms_ago(quorum, voter), lags_for_ms)


def ended_voters(admin: Admin, leader_id: int, addresses: Mapping[int, str]) -> list[int]:
    """Returns the voters of these addresses whose ports refuse, and which do not fetch for ``FETCH_SECONDS_MAX``."""
    return without_fetch(admin, [node for node in refusing(addresses) if node != leader_id])


def without_fetch(admin: Admin, asked: Collection[int]) -> list[int]:
    """Returns which of the voters ``asked`` do not fetch for ``FETCH_SECONDS_MAX``; it looks no longer than until all have.

    What waited at the leader when a process ended counts as a fetch when it is answered: the first look comes after that.
    """
    found = list(asked)
    before: dict[int, int] = {}
    pauses = (FETCH_SECONDS_MAX * share for share in (0.6, 0.25, 0.25, 0.25, 0.25))
    for pause in pauses if found else ():
        time.sleep(pause)
        try:
            voters = admin.describe_quorum().voters
        except OttlaError:  # the quorum has lost its leader meanwhile
            break
        fetched = {one.node_id for one in voters if one.last_fetch_ms > before.setdefault(one.node_id, one.last_fetch_ms) + CLOCK_MS}
        found = [node for node in found if node not in fetched]
        if not found:
            break
    return found


def has_majority(voters: Collection[Voter], silent: Collection[int] = ()) -> bool:
    """Returns whether enough voters are known to run; those whose brokers are ``silent`` are not."""
    return sum(not voter.state and voter.node_id not in silent for voter in voters) >= _needed(voters)


def spare(voters: Collection[Voter], silent: Collection[int] = ()) -> str:
    """Returns how many more controllers may fail; those whose brokers are ``silent`` do not run, as far as is known.

    One that does not reach all others does not count: it may be needed with just these.
    """
    running = [voter for voter in voters if not voter.state and voter.node_id not in silent]
    live, needed = len(running), _needed(voters)
    must = f"of {len(voters)} controllers {needed} must run"
    if live < needed:
        return f"{must}, and {live} do{'es' * (live == 1)}: too few to change anything"
    partial = [voter.node_id for voter in running if voter.cannot_reach]
    left = max(0, live - len(partial) - needed)
    aside = f", of which {', '.join(map(str, partial))} do{'es' * (len(partial) == 1)} not reach all others" if partial else ""
    return f"{must}, and {live} do{aside}: {left or 'no'} more may fail"


def _needed(voters: Collection[Voter]) -> int:
    return len(voters) // 2 + 1
