"""The segments of one log, oldest first: the last one grows, the others are closed and may be deleted or replaced.

A deleted segment's files are renamed at once and removed ``file.delete.delay.ms`` later. Readers that still have it open are
not disturbed by either; a look-up that finds a file missing because of it looks again (``undisturbed``).
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from ottla.errors import DecodeError, StorageError
from ottla.ports import Disk, File
from ottla.storage.config import LogConfig
from ottla.storage.disk_errors import PASSING
from ottla.storage.health import LogHealth
from ottla.storage.log.aborted import AbortedInLog
from ottla.storage.log.reading import Places, segment_index
from ottla.storage.producers import SNAPSHOT_SUFFIX
from ottla.storage.segment.files import file_stem, offsets_of, overwrite
from ottla.storage.segment.segment import Segment, remove_segments
from ottla.storage.segment.transaction_blocks import Block, read_block
from ottla.storage.segment.transaction_index import TransactionIndex

T = TypeVar("T")

HELD_MAX: Final = 4
"""So many closed segments hold their files until they are synced: were there more, descriptors would run out before errors do."""


class LogSegments:
    """``all`` has at least one segment; callers look at it and never change it."""

    __slots__ = ("_deleted", "_disk", "_health", "aborted", "all", "config", "directory", "is_directory_changed", "places", "unsynced")

    def __init__(self, disk: Disk, directory: str, segments: list[Segment], config: LogConfig, health: LogHealth) -> None:
        self._disk: Final = disk
        self._health: Final = health
        self.directory = directory
        self.all: Final = segments
        self.aborted: Final = AbortedInLog(self._read_block)
        self.config = config
        self.places: Final = Places()
        self.unsynced: list[Segment] = []  # closed since the last sync
        self.is_directory_changed = False  # names came or went that no sync of the directory has seen
        self._deleted: list[tuple[int, list[str]]] = []  # when they may be removed, and the paths

    async def undisturbed(self, look: Callable[[], Awaitable[T]]) -> T:
        """Returns what ``look`` finds; repeats it when segments were deleted, cut, moved or replaced meanwhile, for the result may mix
        both.

        FileNotFoundError when the file of a segment is missing that still belongs to the log.
        """
        generation = -1
        while True:
            before, generation = generation, self.places.generation
            try:
                found = await look()
            except FileNotFoundError:
                if self.places.generation == before or self._health.is_failed:
                    raise
            else:
                if self.places.generation == generation or self._health.is_failed:
                    return found

    async def newest_ms(self, segment: Segment) -> int:
        """Returns the newest time in the segment; the time of its last append, where its records have no times."""
        if segment.max_timestamp < 0 and not segment.is_loaded:
            await segment.load()
            self.places.keep_loaded(segment)
        return segment.max_timestamp if segment.max_timestamp >= 0 else segment.appended_ms

    # -- the end

    async def roll(self, base_offset: int, producers: bytes) -> None:
        """Closes the last segment, with its indexes and the producers at its end in files; starts the next one at ``base_offset``."""
        closed = self.all[-1]
        await self.write_indexes()
        await overwrite(self._disk, self.snapshot_path(base_offset), producers)
        fresh = await self._created(base_offset)
        closed.holds_file = True
        self.unsynced.append(closed)
        if len(self.unsynced) > HELD_MAX:
            self.unsynced[-1 - HELD_MAX].synced()
        self.all.append(fresh)
        self.aborted.close_segment(closed.base_offset)
        self.places.keep_loaded(closed)

    async def write_indexes(self) -> None:
        """Writes all indexes of the last segment to files, not yet synced except the index of aborted transactions.

        What is lost of that one would not be missed: it is durable before the next segment is there, and this one trusted.
        """
        segment = self.all[-1]
        await segment.write_indexes()
        await segment.write_transaction_index(self.aborted.tail.to_bytes())
        await segment.sync_transaction_index()

    async def _read_block(self, block: Block) -> bytes:
        segment = self.all[max(0, segment_index(self.all, block.base_offset))]
        if segment.base_offset != block.base_offset:
            raise FileNotFoundError(errno.ENOENT, "the segment was deleted or replaced", self.directory)
        return await read_block(self._disk, segment.transaction_index_path, block)

    async def _created(self, base_offset: int, *, is_durable: bool = True) -> Segment:
        """Creates a segment. Its name and earlier ones are durable before it takes a byte: no power cut leaves a log without its start."""
        interval = self.config.index_interval_bytes
        segment = await Segment.open(self._disk, self.directory, base_offset, index_interval_bytes=interval, create=True)
        if not is_durable:
            self.is_directory_changed = True
            return segment
        try:
            await self._disk.sync_dir(self.directory)
        except OSError as error:  # an empty segment may not stay, or the next start takes it for the log's end
            try:
                await segment.remove()
            except OSError:
                raise OSError(errno.EIO, f"{self.directory} cannot be synced: {error}") from error
            raise
        self.is_directory_changed = False
        return segment

    def base_of(self, offset: int) -> int:
        """Returns where the last segment would start if nothing at or after ``offset`` were left; 0 when none is left."""
        return self.all[segment_index(self.all, offset - 1)].base_offset if offset > self.all[0].base_offset else 0

    async def truncate_to(self, offset: int, *, is_durable: bool) -> int:
        """Removes all at or after ``offset``, and perhaps some before it. Returns the log's new end: there, or at the start of a batch that
        held ``offset``. What compaction has removed before it stays removed.
        """
        keep = segment_index(self.all, offset - 1)
        closed = self.all[keep] if keep + 1 < len(self.all) else None
        reopened = None if closed is None else await self._aborted_of(closed)
        await remove_segments(self._disk, self.directory, self.all, keep + 1, is_durable=is_durable)
        segment = self.all[keep]
        found = await segment.find(offset)
        size, end_offset = (segment.size, offset) if found is None else (found[0], min(found[1].base_offset, offset))
        await segment.truncate(size, end_offset, is_durable=is_durable)
        if reopened is None:
            self.aborted.tail.truncate(end_offset)
        else:
            self.aborted.open_segment(segment.base_offset, reopened, end_offset)
        return end_offset

    async def _aborted_of(self, segment: Segment) -> TransactionIndex:
        try:
            return TransactionIndex.from_bytes(await segment.read_transaction_index())
        except DecodeError as error:
            self._health.fail_damaged(error.message)
            raise StorageError(f"the log in {self.directory} cannot be cut: {error}") from error

    async def start_over_at(self, offset: int, *, is_durable: bool) -> None:
        """Replaces all segments by an empty one, which starts at ``offset``. StorageError, and all is as it was, when there is no room for
        it.

        The new segment is made before the others are removed. A recovery that finds both keeps the first of them, and what continues it.
        """
        index = next((index for index, segment in enumerate(self.all) if segment.base_offset == offset), len(self.all))
        if index == len(self.all):
            fresh = await self._with_room(offset, is_durable=is_durable)
            await remove_segments(self._disk, self.directory, self.all, 0, is_durable=is_durable)
            self.all.append(fresh)
            self.aborted.clear()
            return
        await remove_segments(self._disk, self.directory, self.all, index + 1, is_durable=is_durable)
        await self.all[index].truncate(0, offset, is_durable=is_durable)
        earlier, self.all[:index] = self.all[:index], []
        await remove_segments(self._disk, self.directory, earlier, 0, is_durable=is_durable)
        self.aborted.clear()

    async def _with_room(self, offset: int, *, is_durable: bool) -> Segment:
        try:
            return await self._created(offset, is_durable=is_durable)
        except OSError as error:
            if error.errno in PASSING:
                raise StorageError(f"the log in {self.directory} cannot begin at {offset}: {error}") from error
            raise

    def were_truncated(self) -> None:
        """Forgets places: offsets may mean other batches from now on."""
        self.unsynced = [segment for segment in self.unsynced if segment in self.all[:-1]]
        self.places.forget()

    # -- the start

    def drop_first(self) -> Segment:
        """Drops the oldest segment from the log, its files untouched."""
        segment = self.all.pop(0)
        if segment in self.unsynced:
            self.unsynced.remove(segment)
        self.aborted.drop_below(self.all[0].base_offset)
        self.places.forget()
        return segment

    async def remove_durably(self, segment: Segment) -> None:
        """Removes the files of a dropped segment, also against a power cut.

        Until then a power cut may bring the segment back. Without the file of its aborted transactions these would count as committed, so
        that file is removed last.
        """
        await segment.remove_log()
        await self._disk.sync_dir(self.directory)
        await segment.write_transaction_index(b"")

    async def retire(self, segment: Segment, now_ms: int) -> None:
        """Renames the files of a dropped segment to ``.deleted`` for ``file.delete.delay.ms`` (``remove_deleted``)."""
        if self.config.file_delete_delay_ms <= 0:
            await segment.remove()
            return
        paths = await segment.retire()
        self._deleted.append((now_ms + self.config.file_delete_delay_ms, paths))

    async def remove_old_snapshots(self) -> None:
        """Removes snapshots of producers from before the first segment."""
        for snapshot in await offsets_of(self._disk, self.directory, SNAPSHOT_SUFFIX):
            if snapshot < self.all[0].base_offset:
                await self._disk.remove(self.snapshot_path(snapshot))

    async def forget_snapshots_below(self, offset: int) -> None:
        """Removes snapshots of producers from before ``offset``, durably."""
        older = [snapshot for snapshot in await offsets_of(self._disk, self.directory, SNAPSHOT_SUFFIX) if snapshot < offset]
        for snapshot in older:
            await self._disk.remove(self.snapshot_path(snapshot))
        if older:
            await self._disk.sync_dir(self.directory)

    async def remove_needless_snapshots(self, end_offset: int) -> None:
        """Removes snapshots except at the end and at the start of segments."""
        keep = {end_offset, *(segment.base_offset for segment in self.all)}
        for snapshot in await offsets_of(self._disk, self.directory, SNAPSHOT_SUFFIX):
            if snapshot not in keep:
                await self._disk.remove(self.snapshot_path(snapshot))

    @property
    def has_deleted(self) -> bool:
        """Whether ``.deleted`` files wait for their time."""
        return bool(self._deleted)

    async def remove_deleted(self, now_ms: int) -> None:
        """Removes files deleted longer than ``file.delete.delay.ms`` ago."""
        while self._deleted and self._deleted[0][0] <= now_ms:
            for path in self._deleted.pop(0)[1]:
                try:
                    await self._disk.remove(path)
                except FileNotFoundError:  # it was removed with its directory
                    continue

    # -- all of them

    def retire_all(self) -> None:
        """Marks all segments as retired: only reads in progress still use them."""
        for segment in self.all:
            segment.is_retired = True

    def let_go(self) -> None:
        """Retires all, and closes their files, once no region of them is being sent."""
        self.retire_all()  # a write that was in progress may have started another segment since
        for segment in self.all:
            segment.let_go()

    def replace(self, replaced: Sequence[Segment], fresh: Segment) -> None:
        """Puts ``fresh`` in the place of segments that follow each other: reads from now on need none of the old files."""
        first = self.all.index(replaced[0])
        self.all[first : first + len(replaced)] = [fresh]
        self.places.forget()

    def relocate(self, directory: str, files: Sequence[File]) -> None:
        """Moves the segments to another directory, where all is durable; ``files`` are theirs, in order."""
        self.all[:] = [segment.relocated(directory, file) for segment, file in zip(self.all, files, strict=True)]
        for segment in self.all[:-1]:
            segment.unload()
        self.directory = directory
        self.is_directory_changed = False
        self.unsynced.clear()
        self._deleted.clear()
        self.places.forget()

    @property
    def are_replaced(self) -> bool:
        """Whether some were deleted, truncated, replaced or moved since the log was opened."""
        return self.places.generation > 0

    def snapshot_path(self, offset: int) -> str:
        """Returns the path of the producers' snapshot at ``offset``."""
        return f"{self.directory}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"
