"""What compaction leaves of a batch.

A record stays when it is the newest of its key. A newest record without a value (a tombstone) stays until its batch's delete
horizon has passed: the first cleaning that meets it sets the horizon, ``delete.retention.ms`` ahead, in the batch's header.
Records of aborted transactions are removed; the end marker of a transaction without records is removed by the horizon, too.

A batch without records is removed entirely, unless it is the last one of a producer that is still known, whose sequence it holds,
or the last one of all that is cleaned: a reader that has everything would never get to the log's end otherwise. So one cleaning
leaves one empty batch at most, and the next removes it when the log has grown.

Offsets never change. What is at or after ``end_offset`` was not examined yet and stays as it is.

Source: KIP-534 (delete horizon), KIP-98 (transactions), Kafka's documentation of log compaction.
"""

from __future__ import annotations

import msgspec

from ottla.ports import Buffer
from ottla.records.batch import BatchHeader
from ottla.records.builder import rebuild_batch
from ottla.records.control import end_marker_of
from ottla.records.iteration import iterate_records
from ottla.storage.compaction.offset_map import OffsetMap
from ottla.storage.compaction.transaction_ends import TransactionEnds


class Producer(msgspec.Struct, frozen=True):
    """One that the log still knows. ``last_offset`` is of its last data, -1 when it only has an end marker of its epoch."""

    producer_id: int
    epoch: int
    last_offset: int


class BatchCleaner:
    """The judge of every batch of the log, asked in order."""

    __slots__ = ("_end_offset", "_ends", "_horizon_ms", "_map", "_now_ms", "_producers", "removed_records")

    def __init__(
        self, offsets: OffsetMap, ends: TransactionEnds, producers: list[Producer], *, end_offset: int, now_ms: int, horizon_ms: int
    ) -> None:
        self._map = offsets
        self._ends = ends
        self._producers = {producer.producer_id: producer for producer in producers}
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._horizon_ms = horizon_ms  # for batches that get one now
        self.removed_records = 0

    def clean(self, batch: bytes, header: BatchHeader, *, is_end: bool, may_grow: bool) -> Buffer | None:
        """Returns the batch as it was, or with fewer records; None when it is removed. ``is_end``: the cleaning ends with this batch.

        ``may_grow`` allows a delete horizon to be set, which can make the batch a little longer.
        """
        if header.base_offset >= self._end_offset:
            return batch
        if header.is_control:
            return self._clean_control(batch, header, is_end=is_end, may_grow=may_grow)
        if self._ends.is_aborted(header):
            self.removed_records += header.count
            return rebuild_batch(header, ()) if is_end or self._is_last_of_producer(header) else None
        records = iterate_records(batch)
        has_passed = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        kept = [
            record
            for record in records
            if record.offset >= self._end_offset
            or (record.key is not None and record.offset >= self._map.get(record.key) and not (record.value is None and has_passed))
        ]
        self.removed_records += len(records) - len(kept)
        self._ends.note_kept(header, count=len(kept))
        if not kept:
            return rebuild_batch(header, ()) if is_end or self._is_last_of_producer(header) else None
        needs_horizon = not header.has_delete_horizon and may_grow and any(record.value is None for record in kept)
        if len(kept) == len(records) and not needs_horizon:
            return batch
        return rebuild_batch(header, kept, delete_horizon_ms=self._horizon_ms if needs_horizon else None)

    def _clean_control(self, batch: bytes, header: BatchHeader, *, is_end: bool, may_grow: bool) -> Buffer | None:
        if header.count == 0:
            return batch if is_end or self._is_last_of_producer(header) else None
        records = iterate_records(batch)
        if end_marker_of(records[0]) is None or self._ends.is_needed(header):
            return batch
        if not header.has_delete_horizon:
            return rebuild_batch(header, records, delete_horizon_ms=self._horizon_ms) if may_grow else batch
        if header.base_timestamp > self._now_ms:
            return batch
        self.removed_records += header.count
        return rebuild_batch(header, ()) if is_end or self._is_last_of_producer(header) else None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return False
        if producer.last_offset >= 0:
            return producer.last_offset == header.last_offset
        return header.is_control and producer.epoch == header.producer_epoch
