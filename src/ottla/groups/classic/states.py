"""The states of a classic group.

A group starts Empty. The first member starts a rebalance: PreparingRebalance gathers the members, CompletingRebalance
waits until the leader has brought the assignment, Stable serves it. A change of the members or of what they want starts
the next rebalance from either. When the last member has left, the group is Empty again, and keeps its offsets until they
expire; then, or when a client deletes it, it is Dead: no group of that name is known.

::

      +--------- last member gone ---------+
      v                                    |
    Empty --first member--> PreparingRebalance <--members change-- Stable
      |                        |          ^                          ^
   deleted,             all have joined   | members change           |
   expired                     v          |                          |
      v                     CompletingRebalance --leader has synced--+
    Dead

Source: KIP-62, KIP-345, KIP-394.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}
