"""What the log holds, for replicas that fetch it."""

from __future__ import annotations

from ottla.broker.metadata.log import MetadataLog
from ottla.consensus.calls import FetchAnswer, FetchSnapshotAnswer
from ottla.consensus.effects import Effect, ReadAndReply, ReadPieceAndReply
from ottla.consensus.quorum import Quorum
from ottla.errors import ErrorCode


class DeleteLog(Effect, frozen=True):
    """What a snapshot has is deleted. In the queue, because reads that come before it in there may still need it."""

    offset: int


def has_fetched(quorum: Quorum, node_id: int) -> bool:
    """Whether the node has fetched from this one, while this one leads."""
    voters, observers = quorum.progress()
    found = [voters.get(node_id), *(progress for (node, _), progress in observers.items() if node == node_id)]
    return any(progress is not None and progress.end_offset >= 0 for progress in found)


async def with_records(log: MetadataLog, effect: ReadAndReply) -> FetchAnswer:
    """The answer with the records that it is to have."""
    known = effect.answer
    records = await log.read(effect.start_offset, effect.end_offset, effect.max_bytes)
    return FetchAnswer(known.error, known.epoch, known.leader_id, known.high_watermark, known.log_start_offset, None, None, (), records)


async def with_piece(log: MetadataLog, effect: ReadPieceAndReply) -> FetchSnapshotAnswer:
    """The answer with the piece that it is to have; SNAPSHOT_NOT_FOUND when the snapshot was deleted meanwhile."""
    known = effect.answer
    assert known.snapshot_id is not None, "a piece is of a snapshot"
    error, data = known.error, b""
    files = {(file.epoch, file.end_offset): file for file in await log.snapshots.all()}
    found = files.get((known.snapshot_id.epoch, known.snapshot_id.end_offset))
    try:
        if found is None:
            raise FileNotFoundError
        data = await log.snapshots.read_piece(found, known.position, effect.max_bytes)
    except FileNotFoundError:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    return FetchSnapshotAnswer(error, known.epoch, known.leader_id, known.snapshot_id, known.size, known.position, data)
