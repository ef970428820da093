"""The metadata log of a cluster with one voter: typed records, fsynced before they count, with snapshots.

It is a partition log like any other, in the directory ``__cluster_metadata-0``. A snapshot is a file
``<end offset>-<epoch>.checkpoint`` of record batches that rebuild the image; it is written completely or not at all, and the
log before it is then no longer needed. A group of records counts entirely or not at all, however large it is. Source: KIP-595
(the log is the truth), KIP-630 (snapshots), KIP-868 (transactions).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ottla.broker.metadata.synced_mark import SyncedMark
from ottla.broker.tasks.slices import pause, sliced
from ottla.errors import DecodeError, StorageError
from ottla.loggers import get_logger
from ottla.messages.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from ottla.metadata.history import ImageHistory
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.records import decode_record, encode_record
from ottla.metadata.replay import replay, snapshot_records
from ottla.metadata.transactions import Transactions
from ottla.ports import Disk
from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.replay import records_between
from ottla.wire.schema import Stored

_log = get_logger(__name__)

FOLDER_NAME: Final = "__cluster_metadata-0"
LEADER_EPOCH: Final = 1  # one voter: elected once, for good
_BATCH_RECORDS_MAX: Final = 2000
_SLICE_RECORDS: Final = 250
"""What is encoded before others have their turn: some milliseconds."""
_SNAPSHOTS_KEPT: Final = 2


class _Group(NamedTuple):
    """Records that count together, or not at all; framed where they are more than a batch has."""

    records: Sequence[Stored]
    now_ms: int
    is_framed: bool = False


class MetadataLog:
    """Appends groups of records and remembers the images that they make."""

    def __init__(
        self, disk: Disk, folder: str, log: PartitionLog, mark: SyncedMark, image: ClusterImage, *, bytes_between_snapshots: int
    ) -> None:
        self._disk = disk
        self._mark = mark
        self._folder = folder
        self._log = log
        self._bytes_between_snapshots = bytes_between_snapshots
        self._bytes_at_snapshot = log.size_bytes
        self._images = ImageHistory(image)
        self._end_offset = log.log_end_offset  # of what is appended
        self._unstaged: deque[_Group] = deque()  # what ``flush`` writes

    @classmethod
    async def open(cls, disk: Disk, data_folder: str, *, now_ms: int, clean: bool, bytes_between_snapshots: int) -> MetadataLog:
        """The log, recovered, and the image of its newest snapshot and all records after it.

        StorageError, and nothing is touched, when what was committed is damaged.
        """
        folder = f"{data_folder}/{FOLDER_NAME}"
        await disk.make_dirs(folder)
        image, offset = await _newest_snapshot(disk, folder)
        config = LogConfig(max_message_bytes=2**31 - 1, file_delete_delay_ms=0, fails_when_full=True)
        mark = await SyncedMark.open(disk, folder)
        try:
            log = await PartitionLog.open(
                disk, folder, config=config, now_ms=now_ms, clean=clean, recovery_point=mark.offset if mark.offset > offset else 0
            )
        except StorageError as error:
            way_out = f"restore a good copy of {folder}; without one, ottla dump-log can still read the topics' records"
            raise StorageError(f"the metadata log lists the topics, and {error.message}; {way_out}") from error
        if log.log_end_offset < offset:  # the snapshot outlived the log before it, as it may
            await log.truncate_fully_and_start_at(offset)
        offset = max(offset, log.log_start_offset)
        transactions = Transactions()
        with _readable(f"the metadata log {folder}, from offset {offset} on,"):
            async for records in records_between(log, offset, log.log_end_offset, check_crc=True):
                image = replay(image, transactions.counting([decode_record(record.value or b"") for record in records]))
        image = replace(image, end_offset=log.log_end_offset, epoch=max(log.epochs.latest_epoch, 0))
        opened = cls(disk, folder, log, mark, image, bytes_between_snapshots=bytes_between_snapshots)
        if transactions.is_open:
            _log.warning("metadata_transaction_aborted", end_offset=log.log_end_offset)
            opened.append([AbortTransactionRecord("a crash left it incomplete")], now_ms=now_ms)
            await opened.flush()
        return opened

    @property
    def draft(self) -> ClusterImage:
        """After every appended record: decisions are taken over this one, and the next append changes it."""
        return self._images.draft

    @property
    def committed(self) -> ClusterImage:
        """The newest image that everybody may see."""
        return self._images.committed

    @property
    def end_offset(self) -> int:
        """The offset that the next record will have, unless its group is larger than a batch."""
        return self._end_offset

    @property
    def on_disk_failed(self) -> Callable[[], None]:
        """Called when the log's disk fails."""
        return self._log.health.on_disk_failed

    @on_disk_failed.setter
    def on_disk_failed(self, callback: Callable[[], None]) -> None:
        self._log.health.on_disk_failed = callback

    @property
    def has_pending(self) -> bool:
        return bool(self._unstaged) or self._log.has_pending

    def append(self, records: Sequence[Stored], *, now_ms: int) -> None:
        """The records are in the draft and will be durable after ``flush``: all of them, or none."""
        is_framed = len(records) > _BATCH_RECORDS_MAX
        end_offset = self._end_offset + len(records) + (2 if is_framed else 0)
        self._images.append(records, end_offset=end_offset, epoch=LEADER_EPOCH)
        self._unstaged.append(_Group(records, now_ms, is_framed))
        self._end_offset = end_offset

    async def flush(self) -> int:
        """All appended records survive a power cut; where they end. After a StorageError the log takes no more: the broker must stop."""
        self._images.seal()
        while self._unstaged:
            group = self._next_unstaged()
            batches = await _build_batches(group.records, group.now_ms)
            if group.is_framed:
                begin, end = BeginTransactionRecord(), EndTransactionRecord()
                batches = [_build_batch([begin], group.now_ms), *batches, _build_batch([end], group.now_ms)]
            for batch in batches:
                self._log.stage(memoryview(batch), leader_epoch=LEADER_EPOCH, now_ms=group.now_ms, from_client=False)
            if self._unstaged:
                await pause()
                self._images.seal()
        if self._log.has_pending:
            await self._log.flush()
            await self._log.sync()
            await self._move_mark()
        return self._log.log_end_offset

    def commit(self, high_watermark: int) -> ClusterImage:
        """The log is committed up to there; the newest image that this makes visible."""
        return self._images.commit(high_watermark)

    def _next_unstaged(self) -> _Group:
        """The oldest group, and those after it that one batch has room for: together they are as atomic as each alone."""
        group = self._unstaged.popleft()
        if group.is_framed:
            return group
        gathered = list(group.records)
        while self._unstaged and len(gathered) + len(self._unstaged[0].records) <= _BATCH_RECORDS_MAX:
            gathered += self._unstaged.popleft().records
        return _Group(gathered, group.now_ms)

    async def snapshot_when_due(self) -> bool:
        """Writes a snapshot once enough log has gathered since the last one; True when it did."""
        if self._log.size_bytes - self._bytes_at_snapshot < self._bytes_between_snapshots:
            return False
        await self.write_snapshot()
        return True

    async def write_snapshot(self) -> None:
        """The image is on disk by itself; closed segments before it and older snapshots are deleted."""
        image = self._images.committed
        offset = image.end_offset
        batches = await _build_batches(snapshot_records(image), 0)
        await self._disk.write_file_atomic(f"{self._folder}/{_snapshot_name(offset)}", b"".join(batches))
        self._bytes_at_snapshot = self._log.size_bytes
        self._log.advance_log_start_offset(offset)
        await self._log.delete_segments_below(offset)
        for name in (await _snapshots(self._disk, self._folder))[:-_SNAPSHOTS_KEPT]:
            await self._disk.remove(f"{self._folder}/{name}")

    async def close(self) -> None:
        await self._log.close()
        await self._move_mark()
        await self._mark.close()

    async def _move_mark(self) -> None:
        try:
            await self._mark.move(self._log.recovery_point)
        except OSError as error:  # an older mark is true as well
            _log.warning("synced_offset_not_written", folder=self._folder, reason=str(error))


async def has_metadata(disk: Disk, data_folder: str) -> bool:
    """Whether a metadata log lies in the log directory."""
    return await disk.is_dir(f"{data_folder}/{FOLDER_NAME}")


async def write_first_snapshot(disk: Disk, data_folder: str, records: Sequence[Stored]) -> None:
    """A log that does not exist yet begins with what the records say."""
    folder = f"{data_folder}/{FOLDER_NAME}"
    await disk.make_dirs(folder)
    await disk.sync_dir(data_folder)
    await disk.write_file_atomic(f"{folder}/{_snapshot_name(0)}", bytes(_build_batch(records, 0)))


async def _build_batches(records: Iterable[Stored], now_ms: int) -> list[bytearray]:
    """Batches of all of them, with pauses where they are many."""
    batches: list[bytearray] = []
    builder = BatchBuilder()
    async for record in sliced(records, _SLICE_RECORDS):
        builder.append(None, encode_record(record), timestamp_ms=now_ms)
        if builder.count == _BATCH_RECORDS_MAX:
            batches.append(builder.build())
            builder = BatchBuilder()
    return [*batches, builder.build()] if builder.count else batches


def _build_batch(records: Iterable[Stored], now_ms: int) -> bytearray:
    builder = BatchBuilder()
    for record in records:
        builder.append(None, encode_record(record), timestamp_ms=now_ms)
    return builder.build()


def _snapshot_name(offset: int) -> str:
    return f"{offset:020d}-{LEADER_EPOCH:010d}.checkpoint"


async def _snapshots(disk: Disk, folder: str) -> list[str]:
    return [name for name in await disk.list_dir(folder) if name.endswith(".checkpoint")]


async def _newest_snapshot(disk: Disk, folder: str) -> tuple[ClusterImage, int]:
    """The image and its end offset; an empty one at 0 without snapshots. StorageError for a damaged one."""
    names = await _snapshots(disk, folder)
    if not names:
        return EMPTY_IMAGE, 0
    data = await disk.read_file(f"{folder}/{names[-1]}")
    records: list[Stored] = []
    end = 0
    with _readable(f"the metadata snapshot {folder}/{names[-1]}"):
        for position, header in iterate_batches(data, check_crc=True):
            records += [decode_record(record.value or b"") for record in iterate_records(data, position)]
            end = position + header.size_bytes
        if end != len(data):
            raise DecodeError(f"it ends in a torn batch at byte {end}")
        return replay(EMPTY_IMAGE, records), int(names[-1].split("-")[0])


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    """Records that cannot be read, or that change what is not there, are a StorageError: a broker must not guess its cluster."""
    try:
        yield
    except (DecodeError, KeyError, AssertionError) as error:
        reason = error.message if isinstance(error, DecodeError) else repr(error)
        raise StorageError(f"{what} cannot be replayed: {reason}") from error
