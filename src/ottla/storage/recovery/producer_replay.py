"""The producers of a log, brought forward over batches that no snapshot has seen. A long stretch of them is a job (class c).

Which transactions were aborted in that stretch comes out of it, too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ottla.errors import WorkerDied
from ottla.ports import Disk, File, Job, Pace
from ottla.records.control import REMOVED_MARKER, end_marker_of
from ottla.records.iteration import iterate_records
from ottla.storage.producers import ProducerStates
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.tally import INLINE_BYTES_MAX, PACE_BYTES
from ottla.storage.segment.transaction_index import Transaction
from ottla.storage.segment.walk import BatchWalk


class ReplayRequest(msgspec.Struct, frozen=True):
    """A request to replay bytes ``position`` to ``end`` of the log file at ``path`` over the producers of ``snapshot``."""

    path: str
    position: int
    end: int
    snapshot: bytes
    now_ms: int


class Replayed(msgspec.Struct, frozen=True):
    snapshot: bytes
    aborted: list[Transaction]


async def replay_producers(
    disk: Disk, producers: ProducerStates, segment: Segment, position: int, now_ms: int
) -> tuple[ProducerStates, list[Transaction]]:
    """Returns the producers after the segment's batches from ``position`` on, and what was aborted in them."""
    if segment.size - position > INLINE_BYTES_MAX:
        request = ReplayRequest(segment.path, position, segment.size, producers.to_snapshot(), now_ms)
        try:
            replayed = await disk.work(REPLAY_JOB, request)
            return ProducerStates.from_snapshot(replayed.snapshot), replayed.aborted
        except WorkerDied:
            pass  # as in ``counting.count``
    return producers, await _apply_batches(producers, await segment.opened(), position, segment.size, now_ms, disk.take_turns)


async def _replay(disk: Disk, request: ReplayRequest, pace: Pace) -> Replayed:
    producers = ProducerStates.from_snapshot(request.snapshot)
    aborted = await _apply_batches(producers, await disk.open(request.path), request.position, request.end, request.now_ms, pace)
    return Replayed(producers.to_snapshot(), aborted)


async def _apply_batches(producers: ProducerStates, file: File, position: int, end: int, now_ms: int, pace: Pace) -> list[Transaction]:
    walk, paced, aborted = BatchWalk(file, position, end), position, list[Transaction]()
    while (header := await walk.next()) is not None:
        if walk.position - paced > PACE_BYTES:
            await pace(walk.position - paced)
            paced = walk.position
        if header.producer_id < 0:
            continue
        if header.is_control:
            records = iterate_records(await file.pread(walk.position, header.size_bytes))
            marker = end_marker_of(records[0]) if records else REMOVED_MARKER
            if marker is not None:
                ended = producers.apply_end_marker(header.producer_id, header.producer_epoch, marker, header.last_offset, now_ms)
                if ended is not None and not marker.is_commit:
                    aborted.append(ended)
            continue
        time = header.max_timestamp if header.is_log_append_time else -1
        sequences = (header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, time)
        producers.apply(header.producer_id, header.producer_epoch, sequences, now_ms, is_transactional=header.is_transactional)
    return aborted


REPLAY_JOB: Final = Job(f"{__name__}:REPLAY_JOB", _replay, ReplayRequest, Replayed)
