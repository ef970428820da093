"""What a machine decides, as batches of its log, and how they get there, and the client's error when the log refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.broker.replicas.partition import Partition
from ottla.errors import ErrorCode, KafkaError
from ottla.machine import Decision, Marker, StoredRecord, Writer
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker

EncodeRecord = Callable[[StoredRecord], tuple[bytes, bytes | None]]
SLICE_RECORDS: Final = 1000
"""What is encoded before others have their turn: some milliseconds."""
_RECORD_OVERHEAD_MAX: Final = 32  # what a batch adds to a record's key and value


async def encoded(decision: Decision, encode: EncodeRecord, *, limit: int, now_ms: int) -> list[bytearray]:
    """Returns the batches of the decision's records: one, unless it may be split. KafkaError when one that has a limit
    does not fit into ``limit`` bytes.
    """
    batches: list[bytearray] = []
    builder = BatchBuilder()
    for count, record in enumerate(decision.records, 1):
        key, value = encode(record)
        size = len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX
        if not decision.is_atomic and builder.count and builder.size_bytes + size > limit:
            batches.append(builder.build())
            builder = BatchBuilder()
        builder.append(key, value, timestamp_ms=now_ms)
        if decision.has_limit and builder.size_bytes > limit:
            text = f"{len(decision.records)} records do not fit into a batch of {limit} bytes"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        if count % SLICE_RECORDS == 0:
            await asyncio.sleep(0)
    writer = decision.writer
    if writer is None:
        return [*batches, builder.build()]
    assert decision.is_atomic, "what is part of a transaction is one batch"
    return [builder.build(producer_id=writer.producer_id, producer_epoch=writer.producer_epoch, base_sequence=0, is_transactional=True)]


def write_marker(partition: Partition, leader_epoch: int, marker: Marker, now_ms: int) -> None:
    """Stages the end of the producer's transaction, unless it is there already. Errors as ``Partition.stage_own``.

    NOT_ENOUGH_REPLICAS, and nothing is staged, where it could not be committed.
    """
    if partition.leading is not None:
        partition.leading.machine.check_enough_in_sync()
    batch = build_end_marker(
        is_commit=marker.is_commit, producer_id=marker.producer_id, producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch, timestamp_ms=now_ms,
    )  # fmt: skip
    partition.stage_own(memoryview(batch), leader_epoch=leader_epoch, now_ms=now_ms, transaction_version=marker.transaction_version)


def stage(partition: Partition, leader_epoch: int, batches: list[bytearray], writer: Writer | None, now_ms: int) -> None:
    """Stages the batches. KafkaError with the code that clients get, and nothing is staged, where there are too few replicas."""
    with _as_coordinator():
        if partition.leading is not None:
            partition.leading.machine.check_enough_in_sync()
        if writer is not None and partition.log.producers.marker_count(writer.producer_id) != writer.marker_count:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "a transaction of the producer has ended meanwhile")
        for batch in batches:
            partition.stage_own(memoryview(batch), leader_epoch=leader_epoch, now_ms=now_ms)


def stage_marker(partition: Partition, leader_epoch: int, marker: Marker, now_ms: int) -> None:
    """Stages a marker as ``write_marker`` does, with the errors of ``stage``."""
    with _as_coordinator():
        write_marker(partition, leader_epoch, marker, now_ms)


@contextmanager
def _as_coordinator() -> Iterator[None]:
    """Turns the errors of a log that can no longer be written here into NOT_COORDINATOR: it has another one, or will have."""
    try:
        yield
    except KafkaError as error:
        if error.code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error
        if error.code == ErrorCode.NOT_ENOUGH_REPLICAS:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        raise
