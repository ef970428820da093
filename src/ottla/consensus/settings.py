"""The settings of one member of the quorum: its identity, the voters, and its timeouts.

``fetch_timeout_ms``, ``election_timeout_ms``, ``election_backoff_max_ms``, ``request_timeout_ms`` and ``retry_backoff_ms`` are Kafka's
``controller.quorum.*`` of these names. ``seed`` is a random number that the shell draws: what is called random below is computed from it,
the epoch and the time, so that the machine has no state of a generator.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ottla.consensus.voters import VoterSet
from ottla.wire.schema import ZERO_UUID

NEVER: Final = 2**62
"""A deadline that does not come."""

_MASK: Final = 2**64 - 1


class QuorumSettings(Struct, frozen=True):
    node_id: int
    voters: VoterSet
    directory_id: bytes = ZERO_UUID
    """The id that distinguishes this replica from another one of its node; zero where voters are static."""
    shown_directory_id: bytes = ZERO_UUID
    """Which its fetches name, for those who ask the leader (DescribeQuorum); nothing is decided by it."""
    cluster_id: str | None = None
    fetch_timeout_ms: int = 2000
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_bytes_max: int = 8 * 1024 * 1024
    """Of records that one fetch asks for, and gets, whatever it asks for."""
    piece_bytes_max: int = 1024 * 1024
    """As ``fetch_bytes_max``, of a snapshot."""
    stagger_ms: int = 20
    """How long voters wait for each other's turn when all of them know that the leader is lost."""
    seed: int = 0

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.node_id, self.directory_id)

    def is_named(self, voter_id: int, directory_id: bytes) -> bool:
        """True when a request to that voter is for this replica, and not for an earlier one in its place."""
        return voter_id == self.node_id and (directory_id == self.directory_id or ZERO_UUID in (directory_id, self.directory_id))

    @property
    def fetched_directory_id(self) -> bytes:
        """Which fetches name."""
        return self.shown_directory_id if self.directory_id == ZERO_UUID else self.directory_id

    @property
    def check_quorum_ms(self) -> int:
        """So long a leader leads without a majority that fetches."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def sign_of_life_ms(self) -> int:
        """So long before it would give the leader up a voter says that it lives and waits for its disk."""
        return self.fetch_timeout_ms * 3 // 4

    @property
    def fetch_wait_ms(self) -> int:
        """So long the leader may park a fetch: its answer has to be there before the request, or the leader, is given up."""
        return min(self.fetch_max_wait_ms, self.request_timeout_ms // 2, self.fetch_timeout_ms // 2)

    def jitter(self, bound_ms: int, epoch: int, now_ms: int) -> int:
        """Returns a number from 0 to ``bound_ms``, different for each node, epoch and time."""
        mixed = (self.seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + now_ms * 0x94D049BB133111EB + self.node_id) & _MASK
        mixed = ((mixed ^ (mixed >> 31)) * 0xD6E8FEB86659FD93) & _MASK
        return (mixed >> 32) % (bound_ms + 1)
