"""Snapshots of the metadata log: files ``<end offset>-<epoch>.checkpoint`` in the log's directory.

A snapshot is what all records below its end offset make of the cluster: control batches with a header and a footer, and records between
them that rebuild the image. A file is written completely before it has its name. One that another replica sends arrives in pieces, in a
file ``.part``. ``bootstrap.checkpoint`` holds what a new cluster starts with. Source: KIP-630.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple

from ottla.broker.tasks.slices import sliced
from ottla.errors import DecodeError, StorageError
from ottla.messages.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from ottla.messages.metadata_records import FeatureLevelRecord
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage
from ottla.metadata.record_versions import NEWEST, level_after
from ottla.metadata.records import decode_record, encode_record
from ottla.metadata.replay import ImageBuilder, snapshot_records
from ottla.ports import Disk, File
from ottla.records.batch import iterate_batches, read_header, stamp
from ottla.records.builder import BatchBuilder
from ottla.records.control import ControlType, build_control_batch, control_type_of
from ottla.records.iteration import iterate_records, walk_records
from ottla.wire.compiler import encode
from ottla.wire.schema import Stored

BATCH_RECORDS_MAX: Final = 2000
BOOTSTRAP_NAME: Final = "bootstrap.checkpoint"
_SUFFIX: Final = ".checkpoint"
_SLICE_RECORDS: Final = 250
_UNBOUNDED: Final = 2**31 - 1
"""What is encoded before others have their turn: some milliseconds."""
_KEPT: Final = 2


async def write_bootstrap(disk: Disk, directory: str, records: Sequence[Stored]) -> None:
    """Writes what a cluster starts with; the directory exists."""
    await disk.write_file_atomic(f"{directory}/{BOOTSTRAP_NAME}", await snapshot_bytes(records, 0, 0))


class SnapshotFile(NamedTuple):
    """A complete snapshot. Ordered by what it covers."""

    end_offset: int
    epoch: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{_SUFFIX}"


class Snapshots:
    """The snapshots of one metadata log. What this node makes of its own image is written to ``unreserved``: it can wait for room."""

    def __init__(self, disk: Disk, directory: str, unreserved: Disk) -> None:
        self._disk = disk
        self._unreserved = unreserved
        self._directory = directory
        self._arriving: File | None = None

    async def all(self) -> list[SnapshotFile]:
        """Returns all snapshots, oldest first."""
        found = []
        for name in await self._disk.list_dir(self._directory):
            offset, _, epoch = name.removesuffix(_SUFFIX).partition("-")
            if name.endswith(_SUFFIX) and offset.isdigit() and epoch.isdigit():
                try:
                    file = await self._disk.open(f"{self._directory}/{name}")
                except FileNotFoundError:  # a newer one has taken its place meanwhile
                    continue
                found.append(SnapshotFile(int(offset), int(epoch), file.size))
                await file.close()
        return sorted(found)

    async def remove_leftovers(self) -> None:
        """Removes what was being written, or arriving, when a process ended; others have no use for it."""
        for name in await self._disk.list_dir(self._directory):
            if name.endswith((f"{_SUFFIX}.tmp", ".part")):
                await self._disk.remove(f"{self._directory}/{name}")

    async def newest_ms(self, otherwise: int) -> int:
        """Returns when the newest was written, as the file system has it."""
        found = await self.all()
        return await self._disk.modified_ms(f"{self._directory}/{found[-1].name}") if found else otherwise

    async def read(self, snapshot: SnapshotFile) -> ClusterImage:
        """Returns the image, ending where the snapshot does. StorageError for a damaged one."""
        image = await read_image(self._disk, f"{self._directory}/{snapshot.name}")
        builder = ImageBuilder(image)
        builder.move_to(snapshot.end_offset, snapshot.epoch)
        return builder.image()

    async def read_piece(self, snapshot: SnapshotFile, position: int, max_bytes: int) -> bytes:
        """Returns the snapshot's bytes from ``position`` on. FileNotFoundError when it was deleted meanwhile."""
        file = await self._disk.open(f"{self._directory}/{snapshot.name}")
        try:
            return await file.pread(position, max_bytes)
        finally:
            await file.close()

    async def write(self, image: ClusterImage, now_ms: int) -> SnapshotFile:
        """Writes the image to disk; older snapshots but one may then be removed. OSError, and nothing is written, on a full disk."""
        data = await snapshot_bytes(snapshot_records(image), image.epoch, now_ms)
        written = SnapshotFile(image.end_offset, image.epoch, len(data))
        await self._unreserved.write_file_atomic(f"{self._directory}/{written.name}", data)
        return written

    async def remove_older(self) -> None:
        """Removes all but the newest ones: a replica may be fetching the one before the last."""
        for old in (await self.all())[:-_KEPT]:
            await self._disk.remove(f"{self._directory}/{old.name}")

    async def write_piece(self, position: int, data: bytes) -> None:
        """Writes a piece of a snapshot that is on its way; position 0 starts another one."""
        path = f"{self._directory}/arriving.part"
        if position == 0:
            await self.forget_arriving()
            self._arriving = await self._disk.open(path, create=True)
            await self._arriving.truncate(0)
        assert self._arriving is not None, "a snapshot begins with its first piece"
        assert self._arriving.size == position, "pieces come in order"
        await self._arriving.append([data])

    async def forget_arriving(self) -> None:
        if self._arriving is not None:
            await self._arriving.close()
            self._arriving = None

    async def keep_arrived(self, end_offset: int, epoch: int) -> SnapshotFile:
        """Makes the pieces a snapshot, under its name and durable. StorageError when they are not one."""
        assert self._arriving is not None, "a snapshot arrived"
        path, arrived = self._arriving.path, SnapshotFile(end_offset, epoch, self._arriving.size)
        await self._arriving.sync()
        await self.forget_arriving()
        await read_image(self._disk, path)
        await self._disk.rename(path, f"{self._directory}/{arrived.name}")
        await self._disk.sync_dir(self._directory)
        return arrived


async def read_image(disk: Disk, path: str) -> ClusterImage:
    """Returns the image that a snapshot file's records make; StorageError for one that is damaged or not complete."""
    return await image_of(await disk.read_file(path), end_offset=0, epoch=0, where=path)


async def image_of(data: bytes, *, end_offset: int, epoch: int, where: str = "that was fetched") -> ClusterImage:
    """Returns the image that a snapshot's records make, which end there; StorageError for one that is damaged or not complete."""
    builder = ImageBuilder(EMPTY_IMAGE)
    try:
        async for record in _records(data):
            builder.add(record)
    except (DecodeError, KeyError, AssertionError) as error:
        reason = error.message if isinstance(error, DecodeError) else repr(error)
        raise StorageError(f"the metadata snapshot {where} cannot be replayed: {reason}") from error
    builder.move_to(end_offset, epoch)
    return builder.image()


async def _records(data: bytes) -> AsyncIterator[Stored]:
    end, kinds = 0, list[int]()
    for position, header in iterate_batches(data, check_crc=True):
        end = position + header.size_bytes
        if header.is_control:
            kinds.append(control_type_of(iterate_records(data, position)[0]))
        else:
            async for record in sliced(walk_records(data, position), _SLICE_RECORDS):
                yield decode_record(record.value or b"")
    if end != len(data):
        raise DecodeError(f"it ends in a torn batch at byte {end}")
    if kinds not in ([], [ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER]):  # snapshots of earlier versions have neither
        raise DecodeError("it has no footer: its end is missing")


async def snapshot_bytes(records: Iterable[Stored], epoch: int, now_ms: int) -> bytes:
    """Returns a snapshot file of the records, with its header and footer."""
    header, footer = encode(SnapshotHeaderRecord(0, now_ms), 0), encode(SnapshotFooterRecord(0), 0)
    batches = [build_control_batch(ControlType.SNAPSHOT_HEADER, header, timestamp_ms=now_ms)]
    batches += await build_batches(records, now_ms)
    batches.append(build_control_batch(ControlType.SNAPSHOT_FOOTER, footer, timestamp_ms=now_ms))
    offset = 0
    for batch in batches:
        stamp(batch, base_offset=offset, leader_epoch=epoch)
        offset += read_header(batch, 0).count
    return b"".join(batches)


async def build_batches(
    records: Iterable[Stored], now_ms: int, *, level: int = NEWEST, batch_records_max: int = BATCH_RECORDS_MAX
) -> list[bytearray]:
    """Returns batches of all records, pausing where they are many, in the versions of ``metadata.version`` at ``level``, or as they say."""
    batches: list[bytearray] = []
    values: list[bytes | None] = []
    async for record in sliced(records, _SLICE_RECORDS):
        values.append(encode_record(record, level))
        if type(record) is FeatureLevelRecord:
            level = level_after(record, level)
        if len(values) == batch_records_max:
            batches.append(_batch_of(values, now_ms))
            values = []
    return [*batches, _batch_of(values, now_ms)] if values else batches


def _batch_of(values: list[bytes | None], now_ms: int) -> bytearray:
    builder = BatchBuilder()
    builder.extend([None] * len(values), values, start=0, end=len(values), timestamp_ms=now_ms, size_max=_UNBOUNDED)
    return builder.build()
