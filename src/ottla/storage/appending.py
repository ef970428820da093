"""The growing end of a log: batches are staged, then written, then counted.

``stage`` checks a batch, gives it its offsets in place and remembers its buffer; it is synchronous and touches no file.
``flush`` writes all that was staged in one vectored append, beginning a new segment first where one is due; only then do the
batches count: for ``log_end_offset``, for readers, for indexes, epochs and producers.

A disk that fails once is not trusted again: the log ``is_failed``, refuses everything from then on, and tells its owner
(``on_disk_failed``). A full disk, or a want of descriptors, is another matter (``disk_errors.py``): what was staged is refused,
nothing of it stays in the file, and the next batch is tried again. ``drop_count`` counts these refusals, so that whoever staged
knows what became of it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import msgspec

from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.ports import Disk
from ottla.records.batch import CONTROL, LENGTH_OVERHEAD, LOG_APPEND_TIME, SEQUENCE_MAX, TRANSACTIONAL, check_batch, stamp
from ottla.records.control import EndMarker, end_marker_of
from ottla.records.iteration import iterate_records
from ottla.storage.batch_rules import BatchRules, apply_rules, refuse_size
from ottla.storage.config import LogConfig
from ottla.storage.disk_errors import PASSING, is_disk_at_fault
from ottla.storage.producers import SNAPSHOT_SUFFIX, ProducerStates
from ottla.storage.reading import Places
from ottla.storage.recovery import Recovered
from ottla.storage.segment import Segment, file_stem, overwrite


class Appended(msgspec.Struct, gc=False):
    """Where a batch lies. ``append_time_ms`` is -1 under CreateTime."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool


_Staged = tuple[int, int, int, int, int, int, int, int, int, int]
"""Size, base offset, last offset, largest timestamp, leader epoch, producer id, producer epoch, sequence, attributes, staged at."""


HELD_MAX: Final = 4
"""So many closed segments hold their files until they are synced: were there more, descriptors would run out before errors do."""


class LogEnd:
    """What ``PartitionLog`` is to those who append."""

    __slots__ = (
        "_buffers", "_deleted", "_disk", "_end_markers", "_end_offset", "_epochs_changed",
        "_folder", "_folder_changed", "_is_flushing", "_latest_ms", "_max_message_bytes", "_next_offset", "_pending",
        "_places", "_producers", "_recovery_point", "_staged_timestamp", "_start_offset", "_unsynced", "_unsynced_since_ms",
        "_wants_roll", "_was_closed", "appended_bytes", "config", "cuts", "drop_count", "epochs", "first_dirty_offset", "is_failed",
        "is_retired", "on_disk_failed", "on_failed", "rules", "segments",
    )  # fmt: skip

    def __init__(self, disk: Disk, folder: str, recovered: Recovered, producers: ProducerStates, config: LogConfig, now_ms: int) -> None:
        self._disk: Final = disk
        self._folder = folder
        self.segments: Final = recovered.segments
        self.epochs: Final = recovered.epochs
        self._producers = producers
        self._start_offset = recovered.segments[0].base_offset
        self._end_offset = self._next_offset = recovered.end_offset
        self._recovery_point = recovered.end_offset
        self._pending: list[_Staged] = []
        self._buffers: list[memoryview] = []  # of the batches in _pending
        self._places: Final = Places()
        self._end_markers: dict[int, EndMarker] = {}  # by base offset, of control batches in _pending
        self._latest_ms = now_ms  # the newest time that a caller told
        self._staged_timestamp = -1  # the largest in _pending
        self._unsynced: list[Segment] = []  # closed since the last sync
        self._unsynced_since_ms = -1
        self._epochs_changed = self._folder_changed = False
        self._is_flushing = self._wants_roll = False
        self._was_closed = False
        self._deleted: list[tuple[int, list[str]]] = []  # when they may be removed, and the paths
        self.is_failed = False
        self.is_retired = False  # its partition was deleted
        self.on_failed: Callable[[], None] = _nobody
        self.on_disk_failed: Callable[[], None] = _nobody  # after on_failed, when it was the disk
        self.cuts: Final = recovered.cuts
        """What the recovery removed when the log was opened."""
        self.appended_bytes = 0  # since the log was opened; what retention deletes does not lower it
        self.drop_count = 0  # how often staged batches were dropped: of those staged under the same count, none was
        self.first_dirty_offset = self._start_offset  # below it, the log was compacted; the owner checkpoints it
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """The configuration holds from the next batch on."""
        self.config = config
        self._max_message_bytes = config.max_message_bytes
        self.rules = BatchRules.of(config)

    @property
    def has_pending(self) -> bool:
        """Whether something is staged that no ``flush`` has finished writing, or one is wanted to close the last segment."""
        return self._is_flushing or bool(self._pending) or self._wants_roll

    def close_segment_soon(self) -> None:
        """The next ``flush`` begins a new segment, unless the last one is empty."""
        self._wants_roll = self.segments[-1].size > 0

    def stage(self, view: memoryview, *, leader_epoch: int, now_ms: int, from_client: bool = True, is_prepared: bool = False) -> Appended:
        """The batch has its offsets, and its buffer will be written by the next ``flush``; it must stay as it is until then.

        ``from_client=False``, for what brokers write themselves, allows control batches and leaves out the topic's rules about
        times, keys and codecs, as does ``is_prepared``, for what ``prepare_away`` has brought. Errors: those of ``check_batch`` and
        ``apply_rules``, MESSAGE_TOO_LARGE, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_STORAGE_ERROR; HeavyBatch. Nothing
        is staged then.
        """
        if self.is_failed:
            raise StorageError(f"the log in {self._folder} has failed")
        if len(view) > self._max_message_bytes:
            refuse_size(len(view), self._max_message_bytes)
        header = check_batch(view, from_client=from_client)
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        size = length + LENGTH_OVERHEAD
        append_time = -1
        if producer_id >= 0 and not attributes & CONTROL:
            repeated = self._producers.admit(producer_id, epoch, sequence, delta)
            if repeated is not None:
                return Appended(repeated[2], repeated[3], repeated[4], True)
        if from_client:
            if size > self.config.segment_bytes:
                text = f"the batch has {size} bytes, and a segment at most segment.bytes={self.config.segment_bytes}"
                raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
            if not is_prepared:
                view, max_timestamp = apply_rules(view, header, self.rules, now_ms)
                size = len(view)
            if self.rules.is_log_append_time:
                append_time = max_timestamp
                attributes |= LOG_APPEND_TIME
        base_offset = self._next_offset
        last_offset = base_offset + delta
        stamp(view, base_offset=base_offset, leader_epoch=leader_epoch)
        if attributes & CONTROL:
            marker = end_marker_of(iterate_records(view)[0])
            if marker is not None:
                self._end_markers[base_offset] = marker
        elif producer_id >= 0:
            batch = (sequence, (sequence + delta) & SEQUENCE_MAX, base_offset, last_offset, append_time)
            self._producers.stage(producer_id, epoch, batch, now_ms)
        if max_timestamp > self._staged_timestamp:
            self._staged_timestamp = max_timestamp
        self._next_offset = last_offset + 1
        self._pending.append(
            (size, base_offset, last_offset, max_timestamp, leader_epoch, producer_id, epoch, sequence, attributes, now_ms)
        )
        self._buffers.append(view)
        return Appended(base_offset, last_offset, append_time, False)

    async def flush(self) -> None:
        """All that was staged is in the log. The owner runs one flush at a time; what is staged meanwhile is written by it too.

        StorageError when the disk refused: then nothing that was staged may be acknowledged, ``drop_count`` has grown, and the log
        ``is_failed`` unless the disk was full. Of the batches that one flush wrote in several appends, some may be in the log.
        """
        assert not self._is_flushing, "the owner of a log runs one flush at a time"
        if self.is_failed:
            raise StorageError(f"the log in {self._folder} has failed")
        self._is_flushing = True
        is_written = False
        problem: OSError | None = None
        try:
            if self._wants_roll:
                self._wants_roll = False
                await self._roll(self._end_offset)
            while self._pending:
                batches, self._pending = self._pending, []
                buffers, self._buffers = self._buffers, []
                last = batches[-1]
                self._latest_ms = last[9]
                segment = self.segments[-1]
                # The same segment holds all of them, as nearly always: one append, and no question for each batch.
                if (segment.size or len(batches) == 1) and segment.takes_all(
                    sum(map(len, buffers)), len(batches), last[2], self._staged_timestamp, self.config
                ):
                    self._staged_timestamp = -1
                    await segment.file.append(buffers)
                    for batch in batches:
                        self._count(segment, batch)
                else:
                    self._staged_timestamp = -1
                    await self._write(batches, buffers)
            is_written = True
        except OSError as error:
            problem = error
            raise StorageError(f"the log in {self._folder} cannot be written: {error}") from error
        finally:
            self._is_flushing = False
            self._producers.clear_staged()
            if problem is not None:
                self._refused(problem)
            elif not is_written:  # the flush was cancelled: nobody knows what reached the disk
                self.fail()
        if self.is_failed:  # by a sync meanwhile, which dropped what was staged
            raise StorageError(f"the log in {self._folder} has failed")

    async def _write(self, batches: list[_Staged], buffers: list[memoryview]) -> None:
        """One append for each run of batches that goes to the same segment, which may be a new one."""
        start = 0
        while start < len(batches):
            segment = self.segments[-1]
            end = start + self._fitting(segment, batches[start:])
            if end == start:
                await self._roll(batches[start][1])
                continue
            await segment.file.append(buffers[start:end])
            for batch in batches[start:end]:
                self._count(segment, batch)
            start = end

    def _fitting(self, segment: Segment, batches: list[_Staged]) -> int:
        """How many of the batches go to this segment before the next one begins; an empty one takes at least one."""
        size, largest = 0, -1
        for count, batch in enumerate(batches):
            size += batch[0]
            largest = max(largest, batch[3])
            if not segment.takes_all(size, count + 1, batch[2], largest, self.config):
                return max(count, 0 if segment.size else 1)
            if segment.size == 0 and largest - batches[0][3] > self.config.roll_ms:
                return max(count, 1)
        return len(batches)

    def _count(self, segment: Segment, batch: _Staged) -> None:
        """The batch was written: everything that counts batches counts it."""
        size, base_offset, last_offset, max_timestamp, leader_epoch, producer_id, epoch, sequence, attributes, staged_ms = batch
        if leader_epoch != self.epochs.latest_epoch and self.epochs.assign(leader_epoch, base_offset):
            self._epochs_changed = True
        segment.count_batch(size, last_offset, max_timestamp)
        self.appended_bytes += size
        segment.appended_ms = staged_ms
        if attributes & CONTROL:
            marker = self._end_markers.pop(base_offset, None)
            if marker is not None:
                self._producers.apply_end_marker(producer_id, epoch, marker.coordinator_epoch, staged_ms)
        elif producer_id >= 0:
            time = max_timestamp if attributes & LOG_APPEND_TIME else -1
            entry = (sequence, (sequence + last_offset - base_offset) & SEQUENCE_MAX, base_offset, last_offset, time)
            self._producers.apply(producer_id, epoch, entry, staged_ms, is_transactional=attributes & TRANSACTIONAL != 0)
        if self._unsynced_since_ms < 0:
            self._unsynced_since_ms = staged_ms
        self._end_offset = last_offset + 1

    async def _roll(self, base_offset: int) -> None:
        """The last segment is closed, its indexes and the producers at its end are files; the next one begins at ``base_offset``."""
        closed = self.segments[-1]
        await closed.write_indexes()
        await overwrite(self._disk, self._snapshot_path(base_offset), self._producers.to_snapshot())
        fresh = await self._new_segment(base_offset)
        closed.holds_file = True
        self._unsynced.append(closed)
        if len(self._unsynced) > HELD_MAX:
            self._unsynced[-1 - HELD_MAX].synced()
        self.segments.append(fresh)
        self._places.keep_loaded(closed)

    async def _new_segment(self, base_offset: int) -> Segment:
        """Its name is durable before it takes a byte, as are those before it: no power cut leaves a log without its beginning."""
        interval = self.config.index_interval_bytes
        segment = await Segment.open(self._disk, self._folder, base_offset, index_interval_bytes=interval, create=True)
        try:
            await self._disk.sync_dir(self._folder)
        except OSError as error:  # an empty segment may not stay, or the next start takes it for the log's end
            try:
                await segment.remove()
            except OSError:
                raise OSError(errno.EIO, f"{self._folder} cannot be synced: {error}") from error
            raise
        self._folder_changed = False
        return segment

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._folder}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"

    def fail(self) -> None:
        """Nothing is served from the log any more; what was staged will never be written."""
        if not self.is_failed:
            self.is_failed = True
            self._drop_staged()
            self.on_failed()

    def on_disk_error(self, error: OSError) -> None:
        """The log, alone or with its disk, fails by what the error says; not at all where that passes."""
        if is_disk_at_fault(error):
            self.fail_with_disk()
        elif error.errno not in PASSING:
            self.fail()

    def _refused(self, error: OSError) -> None:
        """What was staged was not written."""
        if error.errno in PASSING and not self.config.fails_when_full:
            self._drop_staged()
        elif self.config.fails_when_full:
            self.fail_with_disk()
        else:
            self.on_disk_error(error)

    def retire(self) -> None:
        """Nothing is read from the log or written to it any more: its partition was deleted. What was staged is dropped."""
        self.is_failed = self.is_retired = True
        for segment in self.segments:
            segment.is_retired = True
        self._drop_staged()

    def fail_with_disk(self) -> None:
        """As ``fail``; it is the disk that failed, and the owner is told."""
        if not self.is_failed:
            self.fail()
            self.on_disk_failed()

    def _drop_staged(self) -> None:
        self.drop_count += 1
        self._pending, self._buffers = [], []
        self._wants_roll = False
        self._staged_timestamp = -1
        self._end_markers.clear()
        self._next_offset = self._end_offset


def _nobody() -> None:
    """Nobody wants to know."""
