"""What a consumer reads: its partitions, and how far it is in each.

A partition's ``position`` is the offset of the next record to hand out; None until it is known (from a commit, a seek or
the reset policy).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.types import NO_EPOCH, TopicPartition


@dataclass(slots=True)
class PartitionPosition:
    position: int | None = None
    leader_epoch: int = NO_EPOCH  # of the last record handed out
    is_paused: bool = False
    high_watermark: int = -1  # as the broker last said
    seek_timestamp: int | None = None  # a special timestamp (-1 end, -2 start) still to be looked up
    version: int = 0  # rises with every seek: what was fetched for an older one is thrown away

    def seek(self, offset: int) -> None:
        self.position, self.seek_timestamp = offset, None
        self.leader_epoch = NO_EPOCH
        self.version += 1

    def seek_to(self, timestamp: int) -> None:
        self.position, self.seek_timestamp = None, timestamp
        self.leader_epoch = NO_EPOCH
        self.version += 1


class Positions:
    """Assigned partitions in the order of their assignment."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionPosition] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._states))

    def __len__(self) -> int:
        return len(self._states)

    def get(self, partition: TopicPartition) -> PartitionPosition | None:
        return self._states.get(partition)

    def of(self, partition: TopicPartition) -> PartitionPosition:
        """KeyError when the partition is not assigned."""
        return self._states[partition]

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these; those kept keep their position."""
        old = self._states
        self._states = {partition: old.get(partition) or PartitionPosition() for partition in partitions}

    def consumed(self) -> dict[TopicPartition, tuple[int, int]]:
        """Position and leader epoch of every partition that has a position."""
        return {partition: (state.position, state.leader_epoch) for partition, state in self._states.items() if state.position is not None}
