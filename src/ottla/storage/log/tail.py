"""The growing end of a log: batches are staged, then written, then counted.

``stage`` checks a batch, gives it its offsets in place and remembers its buffer; it is synchronous and touches no file.
``flush`` writes all that was staged in one vectored append, starting a new segment first where one is due; only then do the
batches count: for ``end_offset``, for readers, for indexes, epochs and producers.

Staged batches that cannot be written are dropped: nothing of them stays in the file, and ``drop_count`` counts the drop, so that the caller
of ``stage`` knows what became of them. ``health.py`` decides whether the log fails.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import msgspec

from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.records.batch import CONTROL, LENGTH_OVERHEAD, LOG_APPEND_TIME, SEQUENCE_MAX, TRANSACTIONAL, check_batch, check_is_one, stamp
from ottla.records.control import REMOVED_MARKER, EndMarker, end_marker_of
from ottla.records.iteration import iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.directory.epoch_file import EpochFile
from ottla.storage.disk_errors import FULL, PASSING
from ottla.storage.health import LogHealth
from ottla.storage.log.batch_rules import BatchRules, apply_rules, refuse_size
from ottla.storage.log.fetched_batches import continuing
from ottla.storage.log.remembered_producers import RememberedProducers
from ottla.storage.log.segments import LogSegments
from ottla.storage.producers import ProducerStates
from ottla.storage.segment.segment import Segment
from ottla.types import NO_EPOCH, NO_OFFSET

INTERRUPTED_MAX: Final = 10_000


class Appended(msgspec.Struct, gc=False):
    """The place of an appended batch. ``append_time_ms`` is -1 under CreateTime; a marker that was not written again has no offsets."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool


class _Staged(msgspec.Struct, gc=False):
    """The weight of a batch once it is written. Sizes in bytes, times in milliseconds."""

    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    sequence: int
    attributes: int
    staged_ms: int


class Tail:
    """``end_offset`` is after the last batch that was written; what is staged starts there."""

    __slots__ = (
        "_buffers", "_counted_epoch", "_end_markers", "_epochs", "_health", "_interrupted", "_is_flushing", "_max_message_bytes",
        "_next_offset", "_pending", "_segments", "_staged_timestamp", "_wants_roll", "appended_bytes", "committed_end", "config",
        "drop_count", "end_offset", "latest_ms", "producers", "remembered", "rules", "unsynced_since_ms",
    )  # fmt: skip

    def __init__(
        self, segments: LogSegments, epochs: EpochFile, producers: ProducerStates, health: LogHealth, *, end_offset: int, now_ms: int
    ) -> None:
        self._segments: Final = segments
        self._epochs: Final = epochs
        self._health: Final = health
        self.producers = producers
        self.remembered: Final = RememberedProducers()
        self.end_offset = self._next_offset = end_offset
        self._pending: list[_Staged] = []
        self._buffers: list[memoryview] = []  # of the batches in _pending
        self._end_markers: dict[int, EndMarker] = {}  # by base offset, of control batches in _pending
        self._staged_timestamp = -1  # the largest in _pending
        self.committed_end: Callable[[], int] | None = None
        """The offset below which records are committed: nothing above it is compacted or deleted. None where all records are."""
        self._is_flushing = self._wants_roll = False
        self._interrupted: dict[int, KafkaError] = {}
        """Producers of batches that were staged and not written, with the error. Their later batches get the same error: if these were
        called out of order, librdkafka would take the records for lost, and send them again under a new epoch.
        """
        self.latest_ms = now_ms  # the newest time that a caller passed
        self.unsynced_since_ms = -1  # when the oldest batch that is not synced was staged
        self.appended_bytes = 0  # since the log was opened; what retention deletes does not lower it
        self._counted_epoch = NO_EPOCH  # of the last batch that was counted: the epochs know it
        self.drop_count = 0  # how often staged batches were dropped: of those staged under the same count, none was
        self.configure(segments.config)

    def configure(self, config: LogConfig) -> None:
        """Applies the configuration from the next batch on."""
        self.config = config
        self._max_message_bytes = config.max_message_bytes
        self.rules = BatchRules.of(config)

    @property
    def has_pending(self) -> bool:
        """Whether a batch is staged that no ``flush`` has finished writing, or a ``flush`` is wanted to close the last segment."""
        return self._is_flushing or bool(self._pending) or self._wants_roll

    @property
    def has_unwritten(self) -> bool:
        """Whether a batch is staged that no ``flush`` has finished writing."""
        return self._is_flushing or bool(self._pending)

    @property
    def is_flushing(self) -> bool:
        return self._is_flushing

    def close_segment_soon(self) -> None:
        """Makes the next ``flush`` start a new segment, unless the last one is empty."""
        self._wants_roll = self._segments.all[-1].size > 0

    def stage(
        self,
        view: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
        is_prepared: bool = False,
        is_permitted: bool = False,
        begins_at_zero: bool = False,
        transaction_version: int = 0,
    ) -> Appended:
        """Gives the batch its offsets; the next ``flush`` writes its buffer, which must stay as it is until then.

        ``from_client=False``, for what brokers write themselves, allows control batches and leaves out sequences and the topic's rules
        about sizes, times, keys and codecs. These rules do not hold either for ``is_prepared``, which is what ``prepare_away`` has brought.
        ``is_permitted`` says that a coordinator has the partition in the batch's transaction, which need not be open here then.
        ``transaction_version`` is an end marker's. A marker that says only what is known is a duplicate. Raises what ``check_batch``,
        ``apply_rules`` and ``ProducerStates`` raise, MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR and HeavyBatch. Nothing is staged then.
        """
        if self._health.is_failed:
            self._health.check(self._segments.directory)
        if from_client and len(view) > self._max_message_bytes:
            check_is_one(view)
            refuse_size(len(view), self._max_message_bytes)
        header = check_batch(view, from_client=from_client)
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        size = length + LENGTH_OVERHEAD
        append_time = -1
        marker: EndMarker | None = None
        if producer_id >= 0 and not from_client:
            if not attributes & CONTROL:
                self.producers.admit_epoch(producer_id, epoch)
            else:
                marker = end_marker_of(iterate_records(view)[0])
                if marker and not self.producers.admit_end_marker(producer_id, epoch, marker, transaction_version=transaction_version):
                    return Appended(NO_OFFSET, NO_OFFSET, -1, True)
        elif producer_id >= 0:
            try:
                repeated = self.producers.admit(producer_id, epoch, sequence, delta, is_transactional=attributes & TRANSACTIONAL != 0)
            except KafkaError as error:
                raise self._interrupted.get(producer_id, error) from None
            if self._interrupted:
                self._interrupted.pop(producer_id, None)
            if repeated is not None:
                return Appended(repeated[2], repeated[3], repeated[4], True)
            if attributes & TRANSACTIONAL and not is_permitted:
                self.producers.check_is_part(producer_id, epoch, sequence, begins_at_zero=begins_at_zero)
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
        if marker is not None:
            self._end_markers[base_offset] = marker
            self.producers.stage_end_marker(producer_id, epoch, marker, now_ms)
        elif producer_id >= 0 and not attributes & CONTROL:
            batch = (sequence, (sequence + delta) & SEQUENCE_MAX, base_offset, last_offset, append_time)
            self.producers.stage(producer_id, epoch, batch, now_ms, is_transactional=attributes & TRANSACTIONAL != 0)
        if max_timestamp > self._staged_timestamp:
            self._staged_timestamp = max_timestamp
        self._next_offset = last_offset + 1
        self._pending.append(
            _Staged(size, base_offset, last_offset, max_timestamp, leader_epoch, producer_id, epoch, sequence, attributes, now_ms)
        )
        self._buffers.append(view)
        return Appended(base_offset, last_offset, append_time, False)

    def stage_replicated(self, data: memoryview, *, leader_epoch: int, now_ms: int, believes_gap: bool) -> int:
        """Stages a leader's batches that continue the log, for the next ``flush`` to write as they are. Returns their bytes.

        One pass over their headers and CRCs; the leader has judged their sequences. Errors as ``continuing``, and KAFKA_STORAGE_ERROR;
        nothing is staged then.
        """
        assert not self.has_unwritten, "a follower's batches continue a log of which nothing is being written"
        self._health.check(self._segments.directory)
        self._interrupted.clear()  # another one leads
        pending: list[_Staged] = []
        buffers: list[memoryview] = []
        markers: dict[int, EndMarker] = {}
        next_offset, staged_timestamp, staged_bytes = self.end_offset, self._staged_timestamp, 0
        for header, view in continuing(
            data, end_offset=next_offset, last_epoch=self._epochs.epochs.latest_epoch, leader_epoch=leader_epoch, believes_gap=believes_gap
        ):
            if header.attributes & CONTROL and header.producer_id >= 0:
                marker = end_marker_of(iterate_records(view)[0]) if header.count else REMOVED_MARKER
                if marker is not None:
                    markers[header.base_offset] = marker
            last_offset = header.base_offset + header.last_offset_delta
            staged_timestamp = max(staged_timestamp, header.max_timestamp)
            next_offset, staged_bytes = last_offset + 1, staged_bytes + len(view)
            buffers.append(view)
            pending.append(
                _Staged(
                    len(view), header.base_offset, last_offset, header.max_timestamp, header.leader_epoch, header.producer_id,
                    header.producer_epoch, header.base_sequence, header.attributes, now_ms,
                )
            )  # fmt: skip
        self._pending += pending
        self._buffers += buffers
        self._end_markers |= markers
        self._next_offset, self._staged_timestamp = next_offset, staged_timestamp
        return staged_bytes

    async def flush(self) -> None:
        """Writes all that was staged to the log. The owner runs one flush at a time; what is staged meanwhile is written by it too.

        StorageError when the disk refused: then nothing that was staged may be acknowledged, ``drop_count`` has grown, and the log
        has failed unless the disk was full. Of the batches that one flush wrote in several appends, some may be in the log.
        """
        assert not self._is_flushing, "the owner of a log runs one flush at a time"
        health, segments = self._health, self._segments
        if health.is_failed:
            health.check(segments.directory)
        self._is_flushing = True
        is_written = False
        problem: OSError | None = None
        batches: list[_Staged] = []
        try:
            if self._wants_roll:  # for retention, which makes room: where there is none, the reserve has enough for that
                self._wants_roll = False
                await segments.roll(self.end_offset, self.producers.to_snapshot())
            if health.has_no_room and self._pending and not self.config.fails_when_full:
                raise OSError(errno.ENOSPC, f"{segments.directory} has no room")
            while self._pending:
                batches, self._pending = self._pending, []
                buffers, self._buffers = self._buffers, []
                last = batches[-1]
                self.latest_ms = last.staged_ms
                segment = segments.all[-1]
                # The same segment holds all of them, as nearly always: one append, and no question for each batch.
                if (segment.size or len(batches) == 1) and segment.takes_all(
                    sum(map(len, buffers)), len(batches), last.last_offset, self._staged_timestamp, self.config
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
            raise StorageError(f"the log in {segments.directory} cannot be written: {error}") from error
        finally:
            self._is_flushing = False
            self.producers.clear_staged()
            if problem is not None:
                self._refused(problem, batches)
                problem = None  # its traceback has this frame: the file of a log that is deleted would wait for the garbage collector
            elif not is_written:  # the flush was cancelled: what reached the disk is unknown
                health.fail()
        if health.is_failed:  # by a sync meanwhile, which dropped what was staged
            health.check(segments.directory)

    async def _write(self, batches: list[_Staged], buffers: list[memoryview]) -> None:
        """Appends each run of batches that belongs to the same segment, which may be a new one, in one call."""
        start = 0
        while start < len(batches):
            segment = self._segments.all[-1]
            end = start + self._fitting(segment, batches[start:])
            if end == start:
                await self._segments.roll(batches[start].base_offset, self.producers.to_snapshot())
                continue
            await segment.file.append(buffers[start:end])
            for batch in batches[start:end]:
                self._count(segment, batch)
            start = end

    def _fitting(self, segment: Segment, batches: list[_Staged]) -> int:
        """Returns how many of the batches go to this segment before the next one starts; an empty one takes at least one."""
        size, largest = 0, -1
        for count, batch in enumerate(batches):
            size += batch.size
            largest = max(largest, batch.max_timestamp)
            if not segment.takes_all(size, count + 1, batch.last_offset, largest, self.config):
                return max(count, 0 if segment.size else 1)
            if segment.size == 0 and largest - batches[0].max_timestamp > segment.roll_ms(self.config):
                return max(count, 1)
        return len(batches)

    def _count(self, segment: Segment, batch: _Staged) -> None:
        """Counts a batch that was written, in everything that counts batches."""
        size, base_offset, last_offset, max_timestamp = batch.size, batch.base_offset, batch.last_offset, batch.max_timestamp
        staged_ms, attributes, producer_id = batch.staged_ms, batch.attributes, batch.producer_id
        if batch.leader_epoch != self._counted_epoch:
            if self._counted_epoch >= 0:
                self.remembered.remember(base_offset, self.producers)
            self._counted_epoch = batch.leader_epoch
            self._epochs.assign(batch.leader_epoch, base_offset)
        segment.count_batch(size, last_offset, max_timestamp)
        self.appended_bytes += size
        segment.appended_ms = staged_ms
        if attributes & CONTROL:
            marker = self._end_markers.pop(base_offset, None)
            if marker is not None:
                ended = self.producers.apply_end_marker(producer_id, batch.producer_epoch, marker, last_offset, staged_ms)
                if ended is not None:
                    self.producers.commit_is_awaited(ended, base_offset if self.committed_end is None else self.committed_end())
                    if not marker.is_commit:
                        self._segments.aborted.tail.add(ended)
        elif producer_id >= 0:
            time = max_timestamp if attributes & LOG_APPEND_TIME else -1
            sequence = batch.sequence
            entry = (sequence, (sequence + last_offset - base_offset) & SEQUENCE_MAX, base_offset, last_offset, time)
            is_transactional = attributes & TRANSACTIONAL != 0
            self.producers.apply(producer_id, batch.producer_epoch, entry, staged_ms, is_transactional=is_transactional)
        if self.unsynced_since_ms < 0:
            self.unsynced_since_ms = staged_ms
        self.end_offset = last_offset + 1

    def _refused(self, error: OSError, batches: list[_Staged]) -> None:
        """Handles a refusal: what was staged was not written, and neither were these, or not all of them."""
        if error.errno in PASSING and not self.config.fails_when_full:
            self._interrupt([*batches, *self._pending], StorageError(f"the log in {self._segments.directory} was not written: {error}"))
            self.drop_staged()
            if error.errno in FULL:
                self._health.on_full()
        elif self.config.fails_when_full:
            self._health.fail_with_disk(error)
        else:
            self._health.on_disk_error(error)

    def _interrupt(self, batches: list[_Staged], error: KafkaError) -> None:
        for batch in batches:
            if batch.producer_id >= 0 and len(self._interrupted) < INTERRUPTED_MAX:
                self._interrupted[batch.producer_id] = error

    def drop_staged(self) -> None:
        """Drops what was staged, for ever; the next batch gets the offset after the last one that was written."""
        self.drop_count += 1
        self._pending, self._buffers = [], []
        self._wants_roll = False
        self._staged_timestamp = -1
        self._end_markers.clear()
        self._next_offset = self.end_offset

    def drop_unwritten(self) -> None:
        """Drops what is staged and not being written. The owner stages nothing more until the flush that runs now has ended.

        ``drop_count`` grows in any case: of what was staged before, the owner must not say that it was dropped, nor that it was not.
        """
        self.drop_count += 1
        if self._pending:
            self._interrupt(self._pending, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader epoch has ended"))
            self._next_offset = self._pending[0].base_offset
            self._end_markers = {offset: marker for offset, marker in self._end_markers.items() if offset < self._next_offset}
            self._pending, self._buffers = [], []
            self._staged_timestamp = -1
        if not self._is_flushing:
            self.producers.clear_staged()

    def remember_producers(self) -> None:
        """Remembers the producers, so that a truncation to this end, or soon after it, need not read what is before."""
        self.remembered.remember(self.end_offset, self.producers)

    def were_truncated(self, end_offset: int) -> None:
        """Takes ``end_offset`` as the log's end. Nothing may be staged."""
        self.end_offset = self._next_offset = end_offset
        self._counted_epoch = NO_EPOCH
        self._wants_roll = False  # it was for a segment that may no longer be the last one
