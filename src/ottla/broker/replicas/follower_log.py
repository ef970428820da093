"""What a follower does to its log: the leader's batches are appended, what the leader does not have is cut.

A log that ends below its checkpointed recovery point is taken for damaged, so checkpoints are written before a cut: once for all
partitions that one answer cuts. Many of them share one sync of their file system afterwards. Until then none is led, or appended to: what
was cut must not come back behind what came after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.broker.replicas.partition import Partition
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.records.batch import read_header
from ottla.replication.follower import Followed

SINGLY_MAX: Final = 8
"""Above so many logs one sync of their file system is cheaper than theirs, each of several files, one by one."""


class Cut(NamedTuple):
    """The log will end there, or be empty and start there."""

    partition: Partition
    followed: Followed
    offset: int
    starts_over: bool = False


class Checkpointing(Protocol):
    """The partitions of this broker."""

    async def write_checkpoints(self) -> None:
        """Writes the recovery-point and log-start checkpoints as of this call, for the next start of this broker."""
        ...

    async def make_durable(self, partitions: Iterable[Partition]) -> None:
        """Makes all that was written of these durable."""
        ...


async def append(
    store: Checkpointing, partition: Partition, followed: Followed, asked_offset: int, records: memoryview, *, now_ms: int
) -> bool:
    """Appends the leader's batches, which were asked for at that offset; False when they answer for another log.

    They do when the partition follows another leader by now, when the log does not end where the request asked, or while it is being
    written or cut (in an earlier epoch: its end is not known). Nothing may be awaited between this check and ``stage_replicated``. A gap is
    believed where the log is compacted, or when the leader sends it twice.

    An empty log may have to start earlier: at the base offset of a batch within which the leader's log starts, because the records before
    that were deleted. KafkaError as ``Tail.stage_replicated``, and of ``Partition.flush``.
    """
    log = partition.log
    if not _follows_at(partition, followed, asked_offset):
        return False
    believes_gap = log.lacks_offsets or followed.has_seen_gap_at(asked_offset)
    try:
        taken = log.tail.stage_replicated(records, leader_epoch=followed.leader_epoch, now_ms=now_ms, believes_gap=believes_gap)
    except KafkaError as error:
        base_offset = read_header(records).base_offset
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or log.log_start_offset < log.log_end_offset or base_offset >= log.log_end_offset:
            raise
        await truncate(store, [Cut(partition, followed, base_offset, starts_over=True)])
        if not _follows_at(partition, followed, base_offset):
            return False
        taken = log.tail.stage_replicated(records, leader_epoch=followed.leader_epoch, now_ms=now_ms, believes_gap=believes_gap)
    if not taken:
        followed.on_gap(asked_offset)
        return False
    await partition.flush()
    partition.count_replicated(taken)
    return partition.followed is followed


def _follows_at(partition: Partition, followed: Followed, offset: int) -> bool:
    """True when it still follows that leader, and its log certainly ends there."""
    return partition.followed is followed and partition.role.is_end_known and partition.log.log_end_offset == offset


def take_progress(partition: Partition, followed: Followed) -> bool:
    """Takes the start of the leader's log over. Returns whether this replica is to keep it on disk."""
    start = min(followed.leader_start_offset, followed.high_watermark)
    if start <= partition.log.durability.start_offset:
        return False
    partition.log.advance_log_start_offset(start)
    return True


async def settle(partition: Partition) -> None:
    """Waits until what was being cut or written is, synced as ``flush.messages`` has it: the leader counts what a fetch reports.

    Errors as ``Partition.flush``.
    """
    while partition.role.cutting is not None:
        await partition.role.cutting.wait()
    await partition.flush()


async def truncate(store: Checkpointing, cuts: Sequence[Cut]) -> None:
    """Truncates as ``truncate_each`` does; raises the error of the first log that could not be cut, after the others are."""
    for error in (await truncate_each(store, cuts)).values():
        raise error


async def truncate_each(store: Checkpointing, cuts: Sequence[Cut]) -> dict[Partition, Exception]:
    """Cuts the logs there, durably, except logs that follow another leader by now. Returns why each other log was not cut.

    One that fails does not keep the others from being cut. KafkaError when the checkpoints cannot be written: then none is cut.
    """
    begun: dict[Partition, Cut] = {}
    failed: dict[Partition, Exception] = {}
    try:
        must_checkpoint = False
        for cut in cuts:
            partition, followed, offset, starts_over = cut
            if partition.followed is followed and partition.role.cutting is None:
                partition.role.begin_cut()
                begun[partition] = cut
                must_checkpoint |= partition.log.begin_truncation(0 if starts_over else offset)
        if must_checkpoint:
            await store.write_checkpoints()
        is_many = len(begun) > SINGLY_MAX
        try:
            for partition, cut in begun.items():
                try:
                    await partition.stand_still(_work(cut, is_durable=not is_many))
                except Exception as error:  # noqa: BLE001 - of this log alone: its owner gets the error
                    failed[partition] = error
        finally:
            if is_many:  # though some of them have failed
                await store.make_durable(begun)
    finally:
        for partition in begun:
            partition.log.durability.truncation_ended()
            partition.role.end_cut()
    return failed


def _work(cut: Cut, *, is_durable: bool) -> Callable[[], Awaitable[None]]:
    partition, followed, offset, starts_over = cut

    async def work() -> None:
        log = partition.log
        if log.is_failed:  # by another cut, of the same disk
            raise StorageError(f"the log in {log.directory} has failed and is not cut")
        if partition.followed is followed:
            try:
                await (log.truncate_fully_and_start_at if starts_over else log.truncate_to)(offset, is_durable=is_durable)
            except OSError as error:
                log.health.broken_off(error)  # it may be cut in part: the next opening finds what it is
                raise StorageError(f"the log in {log.directory} cannot be cut: {error}") from error
            partition.committed.cut_to(log.log_end_offset)

    return work
