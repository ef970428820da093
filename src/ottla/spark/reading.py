"""A task's reading: ranges of offsets in, Arrow record batches out.

One fetch to each leader is under way while the records of the one before are decoded. Where the next one starts is known from
the batch headers alone, so it is sent before decoding starts. What is skipped silently: control batches, records of
aborted transactions with read_committed, and gaps that compaction left.

A response has room for the records of some partitions only, so those that had none come first in the next request. Nothing
follows from an empty answer but that it is asked again. Offsets that the log no longer has, or does not have yet again (its high
watermark does not reach them), are data loss: ``failOnDataLoss`` decides. Source: KIP-74 (limits), KIP-98 (aborted transactions),
KIP-320 (offsets out of range).
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.fetch_request import by_partition, fetch_topics
from ottla.errors import RETRIABLE, ErrorCode, KafkaError
from ottla.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.ports import Buffer
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import BatchHeader, iterate_batches
from ottla.spark.columns import Columns
from ottla.spark.link import link_for
from ottla.spark.offsets import ids_in, made_again
from ottla.spark.options import boolean, number_of
from ottla.spark.planning import OffsetRange, OffsetRanges
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_MS: Final = 500
RETRY_MS: Final = 100
_GONE: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


GO_ON: Final = "Set failOnDataLoss=false to continue without the lost records"
AFTER_DELETION: Final = (
    f"{GO_ON}, where the query is at least once or reads other topics, too; one that is exactly once has to begin again: the offsets of "
    "its group were deleted with the topic"
)


class DataLossError(RuntimeError):
    """Wanted records no longer exist, and failOnDataLoss is true."""


@dataclass(slots=True)
class _Progress:
    """The progress of one range."""

    wanted: OffsetRange
    position: int
    tried_ms: int = 0  # time spent in requests that could have moved the position, and did not


@dataclass(frozen=True, slots=True)
class _Answer:
    """A leader's answer for one partition."""

    partition: TopicPartition
    data: PartitionData
    tried_ms: int  # how long it took; 0 when it may be empty, or hold a part of a batch, for lack of room in the response


@dataclass(frozen=True, slots=True)
class _Part:
    """Fetched batches of one partition that are still to be decoded, from ``start`` to ``end`` of its range."""

    partition: TopicPartition
    data: Buffer
    batches: list[tuple[int, BatchHeader]]
    start: int
    end: int


def read_ranges(
    task: OffsetRanges, options: Mapping[str, str], schema: pa.Schema, *, within_ms: int | None = None, from_start: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yields the records of the task's ranges, in record batches of 2,000 to 10,000 rows, or about a megabyte.

    Ranges ``from_start`` begin where their logs do: what retention deletes meanwhile is no loss. TimeoutError if that takes longer than
    ``within_ms``.
    """
    columns = Columns(schema, fails_on_times=boolean(options, "failOnTimestamp", True))
    for part in RangeFetcher(task, options, within_ms, from_start=from_start).parts():
        for at, header in part.batches:
            columns.add(part.partition.topic, part.partition.partition, part.data, at, header, start=part.start, end=part.end)
            if columns.is_full:
                yield columns.take()
    if columns.row_count:
        yield columns.take()


class RangeFetcher:
    def __init__(self, task: OffsetRanges, options: Mapping[str, str], within_ms: int | None = None, *, from_start: bool = False) -> None:
        self._from_start = from_start
        self._deadline_ms = None if within_ms is None else _now_ms() + within_ms
        self._link = link_for(options)
        self._cluster = self._link.cluster
        self._fails_on_loss = boolean(options, "failOnDataLoss", True)
        self._checks_crcs = boolean(options, "kafka.check.crcs", True)
        self._is_committed = options.get("kafka.isolation.level") == "read_committed"
        self._bytes_max = number_of(options, "kafka.fetch.max.bytes")
        self._partition_bytes_max = number_of(options, "kafka.max.partition.fetch.bytes")
        self._patience_ms = number_of(options, "kafkaConsumer.pollTimeoutMs")
        self._retry_count = number_of(options, "fetchOffset.numRetries")
        self._topic_ids = task.topic_ids
        # One range of a partition at a time: a second one waits until the first is read.
        self._waiting = [_Progress(wanted, wanted.start) for wanted in reversed(task.ranges)]
        self._open: dict[TopicPartition, _Progress] = {}  # in the order of their turns
        self._retry_ms = 0

    def parts(self) -> Iterator[_Part]:
        """Yields all that was fetched, in the order of offsets within each partition."""
        self._fill()
        pending = self._link.start(self._fetch()) if self._open else None
        try:
            while pending is not None:
                answers = pending.result(None if self._deadline_ms is None else max(0, self._deadline_ms - _now_ms()) / 1000)
                pending = None
                self._retry_ms = 0
                parts = [part for answer in answers for part in self._accept(answer)]
                self._fill()
                if self._open:
                    pending = self._link.start(self._fetch())
                    time.sleep(0)  # the loop's thread sends it before this one decodes
                yield from parts
        finally:
            if pending is not None:
                pending.cancel()

    def _fill(self) -> None:
        later = []
        while self._waiting:
            progress = self._waiting.pop()
            if progress.wanted.partition in self._open:
                later.append(progress)
            else:
                self._open[progress.wanted.partition] = progress
        self._waiting = later[::-1]

    # On the link's loop

    async def _fetch(self) -> list[_Answer]:
        """Returns what the leaders have for the open ranges; tries again while that may help and time is left."""
        await asyncio.sleep(self._retry_ms / 1000)
        deadline_ms = _now_ms() + self._patience_ms
        attempt = 0
        while True:
            try:
                return await self._fetch_once()
            except KafkaError as error:
                if not error.is_transient:
                    raise
                delay_ms = self._cluster.backoff.delay_ms(attempt, self._cluster.world)
                if _now_ms() + delay_ms >= deadline_ms:
                    raise
                attempt += 1
                await asyncio.sleep(delay_ms / 1000)

    async def _fetch_once(self) -> list[_Answer]:
        partitions = list(self._open)
        missing = {partition.topic for partition in partitions if self._cluster.leader(partition) is None}
        if missing:
            await self._cluster.refresh(missing)
        for attempt in range(self._retry_count):  # what is known may be of before, and a broker may not have heard of the newest one yet
            others = {partition.topic for partition in partitions if self._is_of_another(partition)}
            if not others:
                break
            await asyncio.sleep(RETRY_MS * attempt / 1000)
            await self._cluster.refresh(others)
        by_leader: dict[int, list[TopicPartition]] = {}
        answers: list[_Answer] = []
        for partition in partitions:
            leader = self._cluster.leader(partition)
            if self._is_gone(partition):
                gone = PartitionData(partition.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answers.append(_Answer(partition, gone, 0))
            elif leader is not None:
                by_leader.setdefault(leader, []).append(partition)
        if not by_leader and not answers:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partitions[0]} has no leader")
        for found in await asyncio.gather(*(self._ask(leader, wanted) for leader, wanted in by_leader.items())):
            answers += found
        return answers

    def _is_gone(self, partition: TopicPartition) -> bool:
        topic = self._cluster.topics.get(partition.topic)
        if topic is not None:
            return partition.partition not in topic.partitions or self._is_of_another(partition)
        return self._cluster.topic_errors.get(partition.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _is_of_another(self, partition: TopicPartition) -> bool:
        """True when the topic that is known has another id than the planned one: it was deleted, and made again."""
        topic = partition.topic
        known = self._cluster.topics.get(topic)
        return known is not None and topic in made_again(self._topic_ids, ids_in({topic: known}))

    async def _ask(self, leader: int, partitions: list[TopicPartition]) -> list[_Answer]:
        asked_ms = _now_ms()
        positions = {partition: self._open[partition].position for partition in partitions}
        names = {partition.topic for partition in partitions}
        topics = fetch_topics(self._cluster, positions, partition_bytes_max=self._partition_bytes_max)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=1 if self._is_committed else 0,
            topics=topics,
        )
        try:
            connection = await self._cluster.connection(leader)
            response = await connection.ask(request, FetchResponse, timeout_ms=self._cluster.request_timeout_ms + WAIT_MS)
            if response.error_code:
                raise KafkaError(response.error_code, f"fetch from broker {leader}")
        except KafkaError:
            await self._cluster.refresh(names)  # the leader may be another one by now
            raise
        found = list(by_partition(request, response))
        if any(data.error_code and data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE for _, data in found):
            await self._cluster.refresh(names)
        is_filled = any(data.records for _, data in found)
        tried_ms = _now_ms() - asked_ms + self._retry_ms
        # The first partition has room for a complete batch in any case, each other one for what is left: a part of one, or nothing.
        may_lack_room = {partition for partition, data in found if is_filled and not data.error_code} - {partitions[0]}
        return [_Answer(partition, data, 0 if partition in may_lack_room else tried_ms) for partition, data in found]

    # In the caller's thread, while no fetch is under way

    def _accept(self, answer: _Answer) -> list[_Part]:
        """Moves the partition's range on; the batches in it that are to be decoded, if any."""
        partition, data = answer.partition, answer.data
        progress = self._open.get(partition)
        if progress is None:
            return []
        progress.tried_ms += answer.tried_ms
        end = progress.wanted.end
        if data.error_code:
            self._on_error(progress, data)
            return []
        view = data.records
        assert view is None or isinstance(view, (bytes, memoryview)), "a response's records are bytes"
        start = position = progress.position
        batches = []
        aborted = AbortedTransactions(data.aborted_transactions or [])
        for at, header in iterate_batches(view or b"", check_crc=self._checks_crcs):
            if header.base_offset >= end:
                position = end
                break
            is_readable = not self._is_committed or aborted.admits(view or b"", at, header)
            if header.last_offset < start:
                continue
            position = min(header.last_offset + 1, end)
            if is_readable and not header.is_control:
                batches.append((at, header))
        if position > start:
            self._move(progress, position)
        elif progress.tried_ms > self._patience_ms:
            self._on_nothing(progress, data)
        return [_Part(partition, view, batches, start, end)] if batches and view is not None else []

    def _move(self, progress: _Progress, position: int) -> None:
        """Moves the range to the position, after all others have had their turn; it is closed when that is its end."""
        progress.position, progress.tried_ms = position, 0
        del self._open[progress.wanted.partition]
        if position < progress.wanted.end:
            self._open[progress.wanted.partition] = progress

    def _on_nothing(self, progress: _Progress, data: PartitionData) -> None:
        """Handles a wait without a record of kafkaConsumer.pollTimeoutMs: the log does not have them, or its leader does not give them."""
        partition, position, end = progress.wanted.partition, progress.position, progress.wanted.end
        if data.high_watermark <= position:
            text = f"the log ends at {data.high_watermark}, but the query planned offsets up to {end}"
            self._on_loss(progress, f"{partition} has no record at offset {position} or after it: {text}", go_on_at=end)
            return
        text = f"no record of {partition} from offset {position} on arrived within kafkaConsumer.pollTimeoutMs={self._patience_ms}"
        if self._is_committed and data.last_stable_offset <= position:
            text += f"; a transaction is open since offset {data.last_stable_offset}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _on_error(self, progress: _Progress, data: PartitionData) -> None:
        partition, position = progress.wanted.partition, progress.position
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start = max(0, data.log_start_offset)
            if position < log_start and self._from_start:
                self._move(progress, min(log_start, progress.wanted.end))
            elif position < log_start:
                text = f"offset {position} of {partition} no longer exists: its log begins at {log_start}"
                self._on_loss(progress, text, go_on_at=min(log_start, progress.wanted.end))
            else:
                text = f"offset {position} of {partition} is past the end of its log, which has been truncated or recreated"
                self._on_loss(progress, text, go_on_at=progress.wanted.end, way_out=AFTER_DELETION)
            return
        is_over = progress.tried_ms > self._patience_ms
        if code in _GONE and (self._is_gone(partition) or is_over):
            text = f"{partition} no longer exists"
            if self._is_of_another(partition):
                text = f"{text}: its topic was deleted and made again"
            self._on_loss(progress, text, go_on_at=progress.wanted.end, way_out=AFTER_DELETION)
        elif code not in RETRIABLE or is_over:
            raise KafkaError(code, f"fetch from {partition} at offset {position}")
        else:
            self._retry_ms = RETRY_MS

    def _on_loss(self, progress: _Progress, text: str, *, go_on_at: int, way_out: str = GO_ON) -> None:
        report_loss(text, fails=self._fails_on_loss, way_out=way_out)
        self._move(progress, go_on_at)


def report_loss(text: str, *, fails: bool, way_out: str = GO_ON) -> None:
    """Raises DataLossError, or warns when the query continues."""
    if fails:
        raise DataLossError(f"{text}. {way_out}")
    warnings.warn(f"data loss: {text}", stacklevel=2)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
