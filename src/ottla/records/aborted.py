"""Aborted transactions of one fetched range: which of its batches a read_committed reader drops.

A fetch response lists, for each partition, the producer and the first offset of every aborted transaction in the range. Batches of
that producer are dropped from there on, until the abort marker that ends the transaction. Source: KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ottla.ports import Buffer
from ottla.records.batch import BatchHeader
from ottla.records.control import end_marker_of
from ottla.records.iteration import iterate_records


class AbortedTransaction(Protocol):
    """An aborted transaction, as a fetch response has it."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class AbortedTransactions:
    """Asked about each batch of the range, in the order of offsets."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(transactions, key=lambda transaction: -transaction.first_offset)
        self._producer_ids: set[int] = set()  # whose aborted transaction has started and not ended

    def admits(self, data: Buffer, at: int, header: BatchHeader) -> bool:
        """True when the batch at byte ``at`` of ``data`` belongs to no aborted transaction."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producer_ids.add(self._coming.pop().producer_id)
        if not header.is_transactional or header.producer_id not in self._producer_ids:
            return True
        if header.is_control and header.count:  # compaction may leave a marker without its record
            marker = end_marker_of(iterate_records(data, at)[0])
            if marker is not None and not marker.is_commit:
                self._producer_ids.discard(header.producer_id)
        return False
