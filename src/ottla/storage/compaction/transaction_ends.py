"""Where transactions ended in the part of a log that is being cleaned, and how.

Filled by one walk over the batches' headers, asked by a second one in the same order. A batch belongs to the first end of its
producer that follows it. Source: KIP-98.
"""

from __future__ import annotations

from collections import deque

from ottla.records.batch import BatchHeader


class TransactionEnds:
    """Ends by producer, in order; asked of a batch, those before it are forgotten."""

    __slots__ = ("_ends", "_kept")

    def __init__(self) -> None:
        self._ends: dict[int, deque[tuple[int, bool]]] = {}  # offset of the end marker, whether it commits
        self._kept: set[int] = set()  # producers of whose current transaction some record stays

    def add(self, marker: BatchHeader, *, is_commit: bool) -> None:
        self._ends.setdefault(marker.producer_id, deque()).append((marker.base_offset, is_commit))

    def copy(self) -> TransactionEnds:
        """Returns the same ends, for another walk from the first batch on."""
        other = TransactionEnds()
        other._ends = {producer_id: ends.copy() for producer_id, ends in self._ends.items()}
        return other

    def is_aborted(self, batch: BatchHeader) -> bool:
        """True when the transaction of a data batch was aborted. A transaction that has not ended here was not."""
        if not batch.is_transactional:
            return False
        end = self._end_of(batch)
        return end is not None and not end[1]

    def note_kept(self, batch: BatchHeader, *, count: int) -> None:
        """Notes that so many records of the batch stay."""
        if batch.is_transactional and count:
            self._kept.add(batch.producer_id)

    def is_needed(self, marker: BatchHeader) -> bool:
        """True when a record stays of the transaction that this marker ends. To be asked once; the producer's next one starts."""
        is_needed = marker.producer_id in self._kept
        self._kept.discard(marker.producer_id)
        return is_needed

    def _end_of(self, batch: BatchHeader) -> tuple[int, bool] | None:
        ends = self._ends.get(batch.producer_id)
        while ends and ends[0][0] < batch.base_offset:
            ends.popleft()
        return ends[0] if ends else None
