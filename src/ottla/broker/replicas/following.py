"""What a follower does to its log: the leader's batches are appended, what the leader does not have is cut."""

from __future__ import annotations

from ottla.broker.replicas.partition import Partition
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import read_header
from ottla.replication.follower import Followed


async def append(partition: Partition, followed: Followed, records: memoryview, *, now_ms: int) -> bool:
    """The leader's batches are in the log; False when the partition follows another leader by now.

    An empty log may have to begin earlier: at the base offset of a batch within which the leader's log begins, because the records before
    that were deleted. KafkaError as ``Tail.stage_replicated``, and of ``Partition.flush``.
    """
    if partition.followed is not followed:
        return False
    log = partition.log
    try:
        log.tail.stage_replicated(records, now_ms=now_ms)
    except KafkaError as error:
        base_offset = read_header(records).base_offset
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or log.log_start_offset < log.log_end_offset or base_offset >= log.log_end_offset:
            raise
        if not await truncate(partition, followed, base_offset, starts_over=True):
            return False
        log.tail.stage_replicated(records, now_ms=now_ms)
    await partition.flush()
    partition.count_replicated(len(records))
    return partition.followed is followed


async def truncate(partition: Partition, followed: Followed, end_offset: int, *, starts_over: bool = False) -> bool:
    """The log ends there, or is empty and begins there; False, and nothing is done, when the partition follows another leader by now."""
    is_done = False

    async def work() -> None:
        nonlocal is_done
        if partition.followed is followed:
            log = partition.log
            await (log.truncate_fully_and_start_at(end_offset) if starts_over else log.truncate_to(end_offset))
            followed.on_truncated(end_offset)
            partition.high_watermark = min(partition.high_watermark, end_offset)
            is_done = True

    await partition.cut(work)
    return is_done
