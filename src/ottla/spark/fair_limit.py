"""``maxOffsetsPerTrigger``: how many offsets of each partition one batch may take."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from ottla.spark.offsets import Offsets
from ottla.types import TopicPartition


class FairLimit:
    """Ends of batches under a limit: each partition's share is in proportion to what it has waiting.

    Shares are rounded down, and the remainder is given one by one to the partitions in turn, from batch to batch. So a limit below
    the number of partitions moves on, and one with few offsets is not left waiting by another that always has more.
    """

    def __init__(self) -> None:
        self._last: TopicPartition | None = None  # that was given one of what was left over

    def end(self, start: Offsets, end: Offsets, rows_max: int) -> Offsets:
        """Returns an end at most ``rows_max`` offsets after the start."""
        waiting = {partition: offset - start[partition] for partition, offset in end.items() if offset > start[partition]}
        total = sum(waiting.values())
        if total <= rows_max:
            return end
        shares = {partition: rows_max * count // total for partition, count in waiting.items()}
        left = rows_max - sum(shares.values())  # less than there are partitions, none of which has all of its own
        for partition in self._in_turn(waiting)[:left]:
            shares[partition] += 1
            self._last = partition
        return {partition: start[partition] + shares[partition] if partition in shares else offset for partition, offset in end.items()}

    def _in_turn(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions in order, starting after the partition whose turn was last."""
        ordered = sorted(partitions)
        first = 0 if self._last is None else bisect.bisect_right(ordered, self._last)
        return ordered[first:] + ordered[:first]
