"""Who votes: one to five nodes, each with an id and perhaps a directory id.

A voter with a directory id is that directory, and no other one of the same node (KIP-853): a node that comes back with an emptied
directory does not remember how it voted, has another directory id, and is an observer until the voters are changed. Without directory ids
(static voters, ``controller.quorum.voters``) nothing distinguishes the two; the quorum therefore refuses to start a voter without its
election state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.schema import ZERO_UUID

VOTERS_MAX: Final = 5


class VoterSet:
    """The voters; it never changes."""

    __slots__ = ("directories", "ids", "majority")

    def __init__(self, directories: Mapping[int, bytes]) -> None:
        """Makes the set; ``directories`` has each voter's directory id, zero where unknown. INVALID_CONFIG for no voters or too many."""
        if not 1 <= len(directories) <= VOTERS_MAX:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"a quorum has 1 to {VOTERS_MAX} voters, not {len(directories)}")
        if min(directories) < 0:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the voter id {min(directories)} is negative")
        self.directories: Final = dict(directories)
        self.ids: Final = tuple(sorted(directories))
        self.majority: Final = len(self.ids) // 2 + 1

    def __contains__(self, node_id: int) -> bool:
        return node_id in self.directories

    def is_voter(self, node_id: int, directory_id: bytes) -> bool:
        """True when that directory of that node votes; an unknown directory id, on either side, is taken for the right one."""
        expected = self.directories.get(node_id)
        return expected is not None and (directory_id == expected or ZERO_UUID in (expected, directory_id))

    def others(self, node_id: int) -> tuple[int, ...]:
        return tuple(voter for voter in self.ids if voter != node_id)

    def rank(self, node_id: int, *, without: int, epoch: int) -> int:
        """Returns the voter's turn, from 0 on, to lead next in place of ``without``: by id, and another one first in each epoch."""
        rest = [voter for voter in self.ids if voter != without]
        return (rest.index(node_id) - epoch) % len(rest)
