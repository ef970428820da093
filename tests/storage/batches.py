"""Batches and logs for tests."""

from __future__ import annotations

from typing import Any

from ottla.ports import Disk
from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.records.control import end_marker_of
from ottla.records.iteration import Record, iterate_records
from ottla.sim.instant_disk import run
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reading import LogSlice
from ottla.storage.log.tail import Appended
from ottla.storage.segment.transaction_index import Transaction

DIRECTORY = "/data/topic-0"


def batch(*values: bytes, timestamp_ms: int = 1000, key: bytes | None = b"key", codec: int = 0, **arguments: Any) -> memoryview:
    """A writable batch whose records are ``timestamp_ms`` and one more each."""
    builder = BatchBuilder()
    for index, value in enumerate(values or (b"value",)):
        builder.append(key, value, timestamp_ms=timestamp_ms + index)
    return memoryview(builder.build(codec, **arguments))


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, timestamp_ms: int = 1000) -> memoryview:
    values = [b"%d" % sequence] * count
    return batch(*values, timestamp_ms=timestamp_ms, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def open_log(disk: Disk, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0, **config: Any) -> PartitionLog:
    run(disk.make_dirs(DIRECTORY))
    return run(
        PartitionLog.open(
            disk,
            DIRECTORY,
            config=LogConfig(**config),
            now_ms=1000,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
    )


def stage(log: PartitionLog, view: memoryview, *, leader_epoch: int = 0, now_ms: int = 2000, from_client: bool = True) -> Appended:
    return log.stage(view, leader_epoch=leader_epoch, now_ms=now_ms, from_client=from_client, is_permitted=True)


def append(log: PartitionLog, *views: memoryview, leader_epoch: int = 0, now_ms: int = 2000) -> list[Appended]:
    """One flush for all of them."""
    appended = [stage(log, view, leader_epoch=leader_epoch, now_ms=now_ms) for view in views]
    run(log.flush())
    return appended


def log_bytes(log: PartitionLog) -> bytes:
    """All that readers can see, from the start of the first segment on."""
    return b"".join(bytes(run(run(segment.opened()).pread(0, segment.size))) for segment in log.segments)


def read(log: PartitionLog, offset: int, *, max_bytes: int = 10**6, end_offset: int) -> LogSlice:
    """What there is to read, and there is."""
    part = run(log.read(offset, max_bytes=max_bytes, end_offset=end_offset))
    assert part is not None
    return part


def records_of(log: PartitionLog) -> list[Record]:
    """Every record from the log start offset on, read as a consumer reads."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read(log, offset, max_bytes=500, end_offset=log.log_end_offset).region.read()
        next_offset = offset
        for position, header in iterate_batches(data, check_crc=True):
            found += [record for record in iterate_records(data, position) if record.offset >= offset]
            next_offset = header.last_offset + 1
        assert next_offset > offset, "every read goes forward"
        offset = next_offset
    return found


def aborted_by_walking(log: PartitionLog) -> tuple[list[Transaction], int]:
    """What was aborted, and the last stable offset, by a walk over all batches of the log."""
    begun: dict[int, int] = {}
    aborted: list[Transaction] = []
    for segment in log.segments:
        data = run(run(segment.opened()).pread(0, segment.size))
        for position, header in iterate_batches(data):
            if not header.is_control:
                if header.is_transactional:
                    begun.setdefault(header.producer_id, header.base_offset)
                continue
            marker = end_marker_of(iterate_records(data, position)[0])
            first_offset = begun.pop(header.producer_id, None)
            if marker is not None and not marker.is_commit and first_offset is not None:
                stable_offset = min([header.last_offset + 1, *begun.values()])
                aborted.append(Transaction(header.producer_id, first_offset, header.last_offset, stable_offset))
    return aborted, min([log.log_end_offset, *begun.values()])
