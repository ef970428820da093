"""The roles of a replica in the quorum, what each of them remembers, and who may become what.

``Unattached``   knows its epoch and no leader. It may have voted in the epoch. It looks for a leader by fetching from the voters in turn; a
                 voter becomes Prospective when its time is up.
``Prospective``  has lost the leader, or knows none, and asks the voters whether they would elect it (KIP-996). The epoch stays: a replica
                 that merely cannot hear the leader does no harm.
``Candidate``    a majority would elect it: it has raised the epoch, voted for itself, and asks for the votes.
``Leader``       a majority has voted for it. Its first record says so; when that is committed, so is everything before it.
``Follower``     fetches from the leader.
``Resigned``     was leader of this epoch, and says so to the voters; it never leads this epoch again.

An observer is a replica that does not vote: it is Unattached or Follower. Times are those at which something is due, ``NEVER`` if it is
not. Model: Kafka's ``QuorumState``. Source: KIP-595, KIP-853, KIP-996.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

import msgspec

from ottla.consensus.calls import Fetch, FetchSnapshot, SnapshotId
from ottla.consensus.settings import NEVER
from ottla.types import NO_LEADER
from ottla.wire.schema import ZERO_UUID


class LeaderLoss(IntEnum):
    """A finding of this replica about the leader of its epoch. The word of another replica counts for nothing."""

    NONE = 0
    SILENT = 1
    """It has answered no fetch for fetch.timeout. Others may hear it: this replica goes on trying, and no longer speaks for it."""
    DEAD = 2
    """A probe of its process was refused twice."""
    RESIGNED = 3
    """It has said itself that it no longer leads this epoch."""


class Role(msgspec.Struct):
    """The role of a replica at the moment. Seen by the collector of garbage: what is parked leads back to the replica."""


class Unattached(Role):
    deadline_ms: int = NEVER
    ask_ms: int = NEVER
    """When the next voter is asked who leads."""


class Prospective(Role):
    leader_id: int = NO_LEADER
    deadline_ms: int = NEVER
    granted: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    ask_ms: dict[int, int] = {}
    """When those who have not answered are asked, again."""
    since_ms: int = 0


class Candidate(Role):
    deadline_ms: int = NEVER
    granted: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    ask_ms: dict[int, int] = {}
    since_ms: int = 0
    is_lost: bool = False
    absent: frozenset[int] = frozenset()
    """Who cannot be reached, and has not voted."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a replica, as its fetches report it."""

    end_offset: int = -1
    fetched_ms: int = -1
    caught_up_ms: int = -1
    leader_end_offset: int = -1
    """The leader's end at that fetch: what has this at a later one was caught up then."""
    begin_ms: int = NEVER
    """When BeginQuorumEpoch is sent, again."""
    directory_id: bytes = ZERO_UUID
    """Which its last fetch named."""


class Parked(msgspec.Struct, frozen=True):
    """A fetch that waits for records, or for news of the high watermark."""

    request: Fetch
    deadline_ms: int


class Leader(Role):
    epoch: int
    start_offset: int
    granting_voters: tuple[int, ...]
    voters: dict[int, Progress]
    observers: dict[tuple[int, bytes], Progress] = {}
    parked: dict[Any, Parked] = {}
    is_established: bool = False


class Download(msgspec.Struct, frozen=True):
    """A snapshot of which everything below ``position`` is there."""

    snapshot_id: SnapshotId
    position: int = 0


class Follower(Role):
    leader_id: int
    deadline_ms: int = NEVER
    fetch_ms: int = NEVER
    """When the next request may leave; while one is on its way, when it is given up."""
    in_flight: Fetch | FetchSnapshot | None = None
    start_ms: int = NEVER
    """When an election is started because the leader is lost."""
    download: Download | None = None


class Resigned(Role):
    deadline_ms: int = NEVER
    successors: tuple[int, ...] = ()
    tell_ms: dict[int, int] = {}
    """When the voters that have not acknowledged it get the message again."""
    since_ms: int = 0


AnyRole = Unattached | Prospective | Candidate | Leader | Follower | Resigned

TRANSITIONS: Final[Mapping[type[Role], frozenset[type[Role]]]] = {
    # At its start a replica is Unattached; the only voter becomes Candidate from there, and one that was leader Resigned.
    Unattached: frozenset({Unattached, Prospective, Candidate, Follower, Resigned}),
    Prospective: frozenset({Unattached, Prospective, Candidate, Follower}),
    Candidate: frozenset({Unattached, Prospective, Leader, Follower}),
    Leader: frozenset({Unattached, Resigned, Follower}),
    Follower: frozenset({Unattached, Prospective, Follower}),
    Resigned: frozenset({Unattached, Prospective, Candidate, Follower}),
}

R = TypeVar("R", bound=Role)


def copied(role: R) -> R:
    """Returns the same role, with dictionaries of its own."""
    made = copy.copy(role)
    for name in role.__struct_fields__:
        value = getattr(role, name)
        if type(value) is dict:
            setattr(made, name, dict(value))
    return made


_TIMES: Final = frozenset(
    {"deadline_ms", "ask_ms", "fetch_ms", "start_ms", "tell_ms", "begin_ms", "fetched_ms", "caught_up_ms", "since_ms", "leader_end_offset"}
)


def key_of(value: Any) -> Hashable:
    """Returns a key that is equal for values that differ in times alone: what is due, and for whom, remains part of it."""
    if isinstance(value, dict):
        return frozenset((name, key_of(part)) for name, part in value.items())
    if isinstance(value, Role | Progress | Parked):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return type(value).__name__, *(_due(part) if name in _TIMES else key_of(part) for name, part in fields)
    return value  # type: ignore[no-any-return]


def _due(time: Any) -> Hashable:
    return tuple(sorted(time)) if isinstance(time, dict) else time >= NEVER
