"""What the log holds, for replicas that fetch it."""

from __future__ import annotations

from ottla.broker.metadata.log import MetadataLog
from ottla.consensus.calls import FetchAnswer, FetchSnapshotAnswer
from ottla.consensus.effects import Effect, ReadAndReply, ReadPieceAndReply
from ottla.consensus.quorum import Quorum
from ottla.errors import ErrorCode, OttlaError
from ottla.loggers import get_logger

_log = get_logger(__name__)


class DeleteLog(Effect, frozen=True):
    """An effect that deletes what a snapshot has. It is queued, because reads that come before it may still need the log."""

    offset: int


def has_fetched(quorum: Quorum, node_id: int) -> bool:
    """True when the node has fetched from this one, while this one leads."""
    voters, observers = quorum.progress()
    found = [voters.get(node_id), *(progress for (node, _), progress in observers.items() if node == node_id)]
    return any(progress is not None and progress.end_offset >= 0 for progress in found)


async def with_records(log: MetadataLog, effect: ReadAndReply) -> FetchAnswer:
    """Returns the answer with its records; KAFKA_STORAGE_ERROR when they cannot be read."""
    known = effect.answer
    error, records = known.error, b""
    try:
        records = await log.read(effect.start_offset, effect.end_offset, effect.max_bytes)
    except Exception as reason:  # noqa: BLE001 - whatever a replica has asked for, this one goes on: only a failed write breaks promises
        error = _unread(reason, offset=effect.start_offset)
    return FetchAnswer(error, known.epoch, known.leader_id, known.high_watermark, known.log_start_offset, None, None, (), records)


async def with_piece(log: MetadataLog, effect: ReadPieceAndReply) -> FetchSnapshotAnswer:
    """Returns the answer with its piece of the snapshot.

    SNAPSHOT_NOT_FOUND when the snapshot was deleted meanwhile, KAFKA_STORAGE_ERROR when it cannot be read.
    """
    known = effect.answer
    assert known.snapshot_id is not None, "a piece is of a snapshot"
    error, data = known.error, b""
    try:
        files = {(file.epoch, file.end_offset): file for file in await log.snapshots.all()}
        found = files.get((known.snapshot_id.epoch, known.snapshot_id.end_offset))
        if found is None:
            raise FileNotFoundError
        data = await log.snapshots.read_piece(found, known.position, effect.max_bytes)
    except FileNotFoundError:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    except Exception as reason:  # noqa: BLE001 - as of records
        error = _unread(reason, offset=known.position)
    return FetchSnapshotAnswer(error, known.epoch, known.leader_id, known.snapshot_id, known.size, known.position, data)


def _unread(reason: Exception, *, offset: int) -> ErrorCode:
    """Returns the error of a read for another replica, which asks again, or asks another one."""
    _log.warning("metadata_not_read", offset=offset, reason=str(reason), exc_info=not isinstance(reason, OttlaError | OSError) and reason)
    return ErrorCode.KAFKA_STORAGE_ERROR
