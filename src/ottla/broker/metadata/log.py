"""The metadata log on disk: batches of typed records with leader epochs, and the snapshots before them.

It is a partition log like any other, in the directory ``__cluster_metadata-0``. A group of records counts entirely or not at all,
however large it is. What is committed is for the quorum to say; here it is written, cut, read, and replaced by a snapshot.
Source: KIP-595 (the log is the truth), KIP-630 (snapshots), KIP-868 (transactions).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from ottla.broker.metadata.log_limits import DEFAULT_LIMITS, LogLimits
from ottla.broker.metadata.snapshots import (
    BATCH_RECORDS_MAX,
    BOOTSTRAP_NAME,
    SnapshotFile,
    Snapshots,
    build_batches,
    read_image,
    write_bootstrap,
)
from ottla.broker.metadata.synced_mark import SyncedMark
from ottla.consensus import election_state
from ottla.consensus.calls import SnapshotId
from ottla.consensus.effects import AppendLeaderChange
from ottla.consensus.election_state import ElectionState
from ottla.consensus.log_shape import LogShape
from ottla.errors import DecodeError, StorageError
from ottla.loggers import get_logger
from ottla.messages.control_records import LeaderChangeMessage, LeaderChangeVoter
from ottla.messages.metadata_records import BeginTransactionRecord, EndTransactionRecord
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.record_versions import NEWEST, TRANSACTIONS, level_after_all
from ottla.metadata.records import decode_record
from ottla.ports import Disk
from ottla.records.batch import iterate_batches
from ottla.records.control import ControlType, build_control_batch
from ottla.records.iteration import iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.directory.reserved_disk import reserved
from ottla.storage.directory.room import Room
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import NO_EPOCH
from ottla.wire.compiler import encode
from ottla.wire.schema import Stored

_log = get_logger(__name__)

_READ_BYTES: Final = 1 << 18
"""Read and handed out before the caller may let others have their turn: some milliseconds."""
DIRECTORY_NAME: Final = "__cluster_metadata-0"


class MetadataBatch(NamedTuple):
    """The records of one batch; none for one that says who leads."""

    end_offset: int
    epoch: int
    records: list[Stored]


class MetadataLog:
    """The metadata log of one node, made by ``open``.

    Writing, cutting and installing come one at a time; reading and syncing may run beside them.
    """

    def __init__(self, disk: Disk, directory: str, log: PartitionLog, mark: SyncedMark, snapshots: Snapshots) -> None:
        self._disk = disk
        self.directory = directory
        self._log = log
        self._mark = mark
        self.snapshots = snapshots

    @classmethod
    async def open(
        cls, disk: Disk, data_directory: str, *, now_ms: int, clean: bool, limits: LogLimits = DEFAULT_LIMITS, room: Room | None = None
    ) -> MetadataLog:
        """Opens the log, recovered. StorageError, and nothing is touched, when what was committed is damaged.

        What must be written is written into the reserve of ``room`` when the disk is full.
        """
        directory, unreserved = f"{data_directory}/{DIRECTORY_NAME}", disk
        disk = disk if room is None else reserved(disk, room)
        await disk.make_dirs(directory, is_private=True)
        snapshots = Snapshots(disk, directory, unreserved)
        await snapshots.remove_leftovers()
        found = await snapshots.all()
        newest = found[-1] if found else SnapshotFile(0, 0, 0)
        config = LogConfig(
            max_message_bytes=2**31 - 1, file_delete_delay_ms=0, fails_when_full=True,
            segment_bytes=limits.segment_bytes, segment_ms=limits.segment_ms,
        )  # fmt: skip
        mark = await SyncedMark.open(disk, directory)
        try:
            log = await PartitionLog.open(
                disk,
                directory,
                config=config,
                now_ms=now_ms,
                clean=clean,
                recovery_point=mark.offset if mark.offset > newest.end_offset else 0,
            )
        except StorageError as error:
            way_out = f"restore a good copy of {directory}; without one, ottla dump-log can still read the topics' records"
            raise StorageError(f"the metadata log lists the topics, and {error.message}; {way_out}") from error
        opened = cls(disk, directory, log, mark, snapshots)
        if not opened._continues(newest):  # the snapshot outlived the log before it, as it may, or came from another replica
            await opened._start_over_at(newest.end_offset)
        return opened

    def _continues(self, newest: SnapshotFile) -> bool:
        """True when the log has what comes after the snapshot, and its earlier part is the snapshot's past.

        An epoch that is not known was forgotten by ``delete_below`` for that snapshot, or a later one.
        """
        log = self._log
        if log.log_end_offset < newest.end_offset:
            return False
        return log.log_start_offset >= newest.end_offset or log.epochs.epoch_at(newest.end_offset - 1) in (newest.epoch, NO_EPOCH)

    async def shape(self) -> LogShape:
        """Returns what the quorum has to know of the log."""
        found = await self.snapshots.all()
        log = self._log
        start_offset = log.log_start_offset
        start_epoch = next((snapshot.epoch for snapshot in found if snapshot.end_offset == start_offset), 0) if start_offset else 0
        return LogShape(
            log.epochs.entries,
            start_offset=start_offset,
            start_epoch=start_epoch,
            end_offset=log.log_end_offset,
            snapshots=shape_of(found),
        )

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Of what is written."""
        return self._log.log_end_offset

    @property
    def appended_bytes(self) -> int:
        """Since it was opened."""
        return self._log.tail.appended_bytes

    async def bytes_from(self, offset: int) -> int:
        """Returns the log's size from there on."""
        size = 0
        for segment in self._log.segments:
            at = await segment.find(offset)
            size += 0 if at is None else segment.size - at[0]
        return size

    @property
    def on_disk_failed(self) -> Callable[[OSError], None]:
        """Called with the error when the log's disk fails."""
        return self._log.health.on_disk_failed

    @on_disk_failed.setter
    def on_disk_failed(self, callback: Callable[[OSError], None]) -> None:
        self._log.health.on_disk_failed = callback

    # -- the election

    async def read_election(self) -> ElectionState | None:
        """Returns how this replica voted last; None when it never did, or has forgotten. StorageError for a damaged file."""
        path = f"{self.directory}/{election_state.FILE_NAME}"
        return election_state.decode(await self._disk.read_file(path)) if await self._disk.exists(path) else None

    async def write_election(self, election: ElectionState, voters: tuple[int, ...]) -> None:
        """Writes the election, durably."""
        path = f"{self.directory}/{election_state.FILE_NAME}"
        await self._disk.write_file_atomic(path, election_state.encode(election, voters=voters))

    # -- writing

    async def write_groups(self, groups: Sequence[Sequence[Stored]], *, epoch: int, now_ms: int, level: int = NEWEST) -> None:
        """Appends the groups to the log, each of them as a whole; ``sync`` makes them durable.

        They are written in the versions of ``metadata.version`` at ``level``, until one of them says another one.
        """
        async for batch in encoded_groups(groups, now_ms, level):
            self._log.stage(memoryview(batch), leader_epoch=epoch, now_ms=now_ms, from_client=False)
        await self._log.flush()

    async def write_leader_change(self, effect: AppendLeaderChange, now_ms: int) -> None:
        """Writes into the log who leads from here on."""
        voters = [LeaderChangeVoter(voter) for voter in effect.voters]
        granting = [LeaderChangeVoter(voter) for voter in effect.granting_voters]
        value = encode(LeaderChangeMessage(0, effect.leader_id, voters, granting), 0)
        batch = build_control_batch(ControlType.LEADER_CHANGE, value, timestamp_ms=now_ms)
        self._log.stage(memoryview(batch), leader_epoch=effect.epoch, now_ms=now_ms, from_client=False)
        await self._log.flush()

    async def write_fetched(self, data: bytes, *, end_offset: int, now_ms: int) -> None:
        """Writes the leader's batches below ``end_offset`` to the log, with their offsets and epochs."""
        copied, next_offset = bytearray(data), self._log.log_end_offset
        for position, header in iterate_batches(copied):
            if header.base_offset >= end_offset:
                break
            assert header.base_offset == next_offset, "a replica's log has no holes"
            view = memoryview(copied)[position : position + header.size_bytes]
            next_offset = self._log.stage(view, leader_epoch=header.leader_epoch, now_ms=now_ms, from_client=False).last_offset + 1
        await self._log.flush()

    async def sync(self) -> None:
        """Makes all that was written before the call durable.

        After a StorageError the log takes nothing further: the process must stop.
        """
        await self._log.sync()
        try:
            await self._mark.move(self._log.recovery_point)
        except OSError as error:  # an older mark is true as well
            _log.warning("synced_offset_not_written", directory=self.directory, reason=str(error))

    async def truncate_to(self, offset: int) -> None:
        """Removes everything at or after ``offset``, durably."""
        await self._mark.lower(offset)
        await self._log.truncate_to(offset)
        await self._log.sync()

    async def install(self, end_offset: int, epoch: int) -> SnapshotFile:
        """Replaces the whole log by the snapshot that has arrived."""
        arrived = await self.snapshots.keep_arrived(end_offset, epoch)
        await self._start_over_at(end_offset)
        _log.info("metadata_snapshot_installed", end_offset=end_offset, epoch=epoch, size=arrived.size)
        return arrived

    async def _start_over_at(self, offset: int) -> None:
        await self._mark.lower(offset)
        await self._log.truncate_fully_and_start_at(offset)

    async def delete_below(self, offset: int) -> None:
        """Deletes closed segments below ``offset``, which a snapshot covers, and snapshots without a use."""
        self._log.advance_log_start_offset(offset)
        await self._log.delete_segments_below(offset)
        await self.snapshots.remove_older()

    # -- reading

    async def read(self, start_offset: int, end_offset: int, max_bytes: int) -> bytes:
        """Returns batches from ``start_offset`` on: at least one, none that starts at ``end_offset`` or later."""
        part = await self._log.read(start_offset, max_bytes=max_bytes, end_offset=end_offset)
        return b"" if part is None else part.region.read()

    async def records(self, start_offset: int, end_offset: int) -> AsyncIterator[list[MetadataBatch]]:
        """Yields the batches of one read at a time. StorageError for what cannot be read."""
        offset = start_offset
        try:
            while offset < end_offset:
                batches = []
                data = await self.read(offset, end_offset, _READ_BYTES)
                for position, header in iterate_batches(data, check_crc=True):
                    offset = header.last_offset + 1
                    records = (
                        [] if header.is_control else [decode_record(record.value or b"") for record in iterate_records(data, position)]
                    )
                    batches.append(MetadataBatch(offset, header.leader_epoch, records))
                yield batches
        except DecodeError as error:
            raise self.unreadable(offset, error.message) from error

    def unreadable(self, offset: int, reason: str) -> StorageError:
        """Returns the error for an unreadable log: a node must not guess its cluster."""
        return StorageError(f"the metadata log {self.directory}, from offset {offset} on, cannot be replayed: {reason}")

    async def newest_image(self) -> ClusterImage:
        """Returns the image of the newest snapshot; the empty one without any."""
        found = await self.snapshots.all()
        return await self.snapshots.read(found[-1]) if found else EMPTY_IMAGE

    async def bootstrap_image(self) -> ClusterImage:
        """Returns the feature levels and users that the directory was formatted for; empty when nothing was said."""
        path = f"{self.directory}/{BOOTSTRAP_NAME}"
        return await read_image(self._disk, path) if await self._disk.exists(path) else EMPTY_IMAGE

    async def close(self) -> None:
        await self.snapshots.forget_arriving()
        await self._log.close()
        await self._mark.move(self._log.recovery_point)
        await self._mark.close()


def shape_of(found: Sequence[SnapshotFile]) -> tuple[tuple[SnapshotId, int], ...]:
    """Returns the snapshots as the quorum knows them."""
    return tuple((SnapshotId(snapshot.epoch, snapshot.end_offset), snapshot.size) for snapshot in found)


def is_framed(records: Sequence[Stored], level: int = NEWEST) -> bool:
    """True when the group is more than a batch holds: it is then framed by two records, which take up offsets as well.

    Levels before 3.6-IV1 know no such frame: there a group is one batch, however large it is.
    """
    return len(records) > BATCH_RECORDS_MAX and level >= TRANSACTIONS


async def encoded_groups(groups: Sequence[Sequence[Stored]], now_ms: int, level: int = NEWEST) -> AsyncIterator[bytearray]:
    """Yields the batches of the groups, in order; a group of several batches is framed."""
    for records in _gathered(groups):
        has_frame = is_framed(records, level)
        batches = await build_batches(
            records, now_ms, level=level, batch_records_max=BATCH_RECORDS_MAX if has_frame else max(BATCH_RECORDS_MAX, len(records))
        )
        level = level_after_all(records, level)
        if has_frame:
            begin, end = await build_batches([BeginTransactionRecord()], now_ms), await build_batches([EndTransactionRecord()], now_ms)
            batches = [*begin, *batches, *end]
        for batch in batches:
            yield batch


def _gathered(groups: Sequence[Sequence[Stored]]) -> list[Sequence[Stored]]:
    """Returns groups that fit into one batch, joined: together they are as atomic as each alone."""
    gathered: list[Sequence[Stored]] = []
    for records in groups:
        last = gathered[-1] if gathered else None
        if last is not None and not is_framed(last) and len(last) + len(records) <= BATCH_RECORDS_MAX:
            gathered[-1] = [*last, *records]
        else:
            gathered.append(records)
    return gathered


async def format_metadata(disk: Disk, data_directory: str, records: Sequence[Stored]) -> None:
    """Makes a metadata log, still empty, what its cluster starts with, and a voter that has never voted."""
    directory = f"{data_directory}/{DIRECTORY_NAME}"
    await disk.make_dirs(directory, is_private=True)
    await disk.sync_dir(data_directory)
    await write_bootstrap(disk, directory, records)
    await disk.write_file_atomic(f"{directory}/{election_state.FILE_NAME}", election_state.encode(ElectionState()))


async def has_metadata(disk: Disk, data_directory: str) -> bool:
    """True when a metadata log is in the log directory."""
    return await disk.is_dir(f"{data_directory}/{DIRECTORY_NAME}")
