"""The active controller's own log: an image, and the records that it has decided since. In memory, for the brokers to fetch.

It is of one controller epoch, and its offsets start where no earlier controller's came: at the epoch times 2^32. A broker that has the log
of an earlier epoch, or none, or one that is too far behind, starts with the image. Nothing is here that is not in ZooKeeper already.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from ottla.broker.metadata.log import MetadataBatch, encoded_groups
from ottla.broker.metadata.snapshots import snapshot_bytes
from ottla.consensus.calls import SnapshotId
from ottla.errors import DecodeError, StorageError
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.records import decode_record
from ottla.metadata.replay import snapshot_records
from ottla.records.batch import iterate_batches, read_header, stamp
from ottla.records.iteration import iterate_records
from ottla.wire.schema import Stored

EPOCH_SPAN: Final = 1 << 32
"""Offsets of one epoch; no controller decides so much."""


class _Batch(NamedTuple):
    base_offset: int
    end_offset: int
    data: bytes


class ServedLog:
    """``epoch`` is -1 before there is anything."""

    def __init__(self) -> None:
        self.epoch = -1
        self.start_offset = 0
        self.end_offset = 0
        self.size_bytes = 0  # of what came after the image
        self._image = EMPTY_IMAGE
        self._snapshots: dict[SnapshotId, bytes] = {}
        self._batches: list[_Batch] = []

    def start_over(self, image: ClusterImage) -> None:
        """Starts the log with the image, in its epoch."""
        self._image = image
        self.epoch, self.start_offset, self.end_offset = image.epoch, image.end_offset, image.end_offset
        self._batches.clear()
        self._snapshots.clear()
        self.size_bytes = 0

    def begin_at(self, image: ClusterImage) -> None:
        """Leaves what comes before the image's end to the image. A reader of the last one may go on with it."""
        self._image = image
        self.start_offset = image.end_offset
        self._batches = [batch for batch in self._batches if batch.end_offset > image.end_offset]
        self.size_bytes = sum(len(batch.data) for batch in self._batches)
        for old in sorted(self._snapshots)[:-1]:
            del self._snapshots[old]

    @property
    def snapshot_id(self) -> SnapshotId:
        return SnapshotId(self.epoch, self.start_offset)

    async def snapshot(self, wanted: SnapshotId, now_ms: int) -> bytes | None:
        """Returns the image as a file of records; None when it no longer exists."""
        found = self._snapshots.get(wanted)
        if found is None and wanted == self.snapshot_id:
            found = await snapshot_bytes(snapshot_records(self._image), self.epoch, now_ms)
            if wanted == self.snapshot_id:
                self._snapshots[wanted] = found
        return found

    async def append_groups(self, groups: Sequence[Sequence[Stored]], now_ms: int) -> None:
        """Appends the groups to the log, each as a whole."""
        async for data in encoded_groups(groups, now_ms):
            stamp(data, base_offset=self.end_offset, leader_epoch=self.epoch)
            self._append(bytes(data), self.end_offset + read_header(data, 0).count)

    def append_fetched(self, data: bytes) -> None:
        """Appends the controller's batches to the log. DecodeError when they do not start at its end."""
        for position, header in iterate_batches(data, check_crc=True):
            if header.base_offset != self.end_offset or header.leader_epoch != self.epoch:
                raise DecodeError(f"a batch of epoch {header.leader_epoch} at {header.base_offset}, where {self.end_offset} was due")
            self._append(data[position : position + header.size_bytes], header.last_offset + 1)

    def _append(self, data: bytes, end_offset: int) -> None:
        self._batches.append(_Batch(self.end_offset, end_offset, data))
        self.end_offset = end_offset
        self.size_bytes += len(data)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns batches from ``offset`` on, at least one if there is one."""
        found: list[bytes] = []
        size = 0
        for batch in self._batches[self._place(offset) :]:
            if found and size + len(batch.data) > max_bytes:
                break
            found.append(batch.data)
            size += len(batch.data)
        return b"".join(found)

    def _place(self, offset: int) -> int:
        return max(0, bisect_right(self._batches, offset, key=lambda batch: batch.base_offset) - 1) if offset < self.end_offset else 1 << 62

    async def records(self, start_offset: int, end_offset: int) -> AsyncIterator[list[MetadataBatch]]:
        """Yields the batches, for the images of a broker that follows."""
        for batch in self._batches[self._place(start_offset) :]:
            if batch.end_offset <= end_offset:
                records = [decode_record(record.value or b"") for record in iterate_records(batch.data, 0)]
                yield [MetadataBatch(batch.end_offset, self.epoch, records)]

    def forget_below(self, offset: int) -> None:
        """Forgets what is below the offset: a broker that only follows keeps nothing that it has applied."""
        self._batches = [batch for batch in self._batches if batch.end_offset > offset]

    def unreadable(self, offset: int, reason: str) -> StorageError:
        return StorageError(f"what the controller of epoch {self.epoch} sent for offset {offset} does not fit: {reason}")
