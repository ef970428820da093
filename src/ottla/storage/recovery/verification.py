"""Every file of a log directory checked against what it must be, without changes. For a directory that no broker has open.

*Damage* is what a start could not repair: bytes that were acknowledged are not what was written. A *note* is what a start
repairs by itself: a torn end, an index that does not fit, what an interrupted deletion left.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

import msgspec

from ottla.errors import DecodeError, StorageError
from ottla.pace import no_pace
from ottla.ports import Disk
from ottla.records.epochs import CHECKPOINT_NAME, EpochCache
from ottla.storage.directory.checkpoint import CLEANER_OFFSET, LOG_START_OFFSET, RECOVERY_POINT, from_text
from ottla.storage.directory.directory import CLEAN_SHUTDOWN_NAME, META_NAME, DirectoryIdentity
from ottla.storage.producers import SNAPSHOT_SUFFIX, ProducerStates
from ottla.storage.recovery.damage import DAMAGED_SUFFIX
from ottla.storage.recovery.scrubbing import Scrubbed, ScrubRequest, scrub
from ottla.storage.segment.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_stem, offsets_of
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex
from ottla.storage.segment.transaction_index import from_bytes
from ottla.storage.segment.walk import BatchWalk

_PARTITION: Final = re.compile(r"[a-zA-Z0-9._-]+-\d+")
_LEFTOVER: Final = re.compile(r".*\.(deleted|cleaned|swap|tmp)")


class Finding(msgspec.Struct, frozen=True):
    """A fault of the file at ``path``, which is relative to the directory."""

    path: str
    is_damage: bool
    text: str
    cut_bytes: int = 0
    """What the next start cuts off: gone, unless other replicas have it."""


class Verification(msgspec.Struct):
    """The result of a verification: what it read, and what it found."""

    partition_count: int = 0
    segment_count: int = 0
    batch_count: int = 0
    size_bytes: int = 0
    findings: list[Finding] = []

    @property
    def is_damaged(self) -> bool:
        return any(finding.is_damage for finding in self.findings)

    @property
    def cut_bytes(self) -> int:
        """What the next start cuts off, of all files."""
        return sum(finding.cut_bytes for finding in self.findings)


async def verify(disk: Disk, directory: str) -> Verification:
    """Returns the findings for the entire log directory. StorageError when it is not a log directory of ottla."""
    meta_path = f"{directory}/{META_NAME}"
    if not await disk.exists(meta_path):
        raise StorageError(f"{directory} has no {META_NAME}: it is not a log directory")
    DirectoryIdentity.from_text((await disk.read_file(meta_path)).decode(errors="replace"), meta_path)
    verifier = _Verifier(disk, directory)
    await verifier.check_checkpoints()
    for name in await disk.list_dir(directory):
        if name.endswith("-delete"):
            verifier.note(name, "a deleted partition that the next start removes")
        elif _PARTITION.fullmatch(name) and await disk.is_dir(f"{directory}/{name}"):
            await verifier.check_partition(name)
    return verifier.result


class _Verifier:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.result = Verification()
        self._was_clean = False
        self._recovery_points: dict[str, int] = {}  # by partition; below them everything was synced, 0 where a power cut left none
        self._compacted: set[str] = set()  # partitions whose segments may end before the next one starts

    def note(self, path: str, text: str, *, cut_bytes: int = 0) -> None:
        self.result.findings.append(Finding(path, False, text, cut_bytes))

    def _damage(self, path: str, text: str) -> None:
        self.result.findings.append(Finding(path, True, text))

    async def check_checkpoints(self) -> None:
        self._was_clean = await self._disk.exists(f"{self._directory}/{CLEAN_SHUTDOWN_NAME}")
        for name in (RECOVERY_POINT, LOG_START_OFFSET, CLEANER_OFFSET):
            if await self._disk.exists(f"{self._directory}/{name}"):
                try:
                    offsets = from_text((await self._disk.read_file(f"{self._directory}/{name}")).decode())
                    if name == RECOVERY_POINT:
                        self._recovery_points = {str(key): offset for key, offset in offsets.items()}
                    elif name == CLEANER_OFFSET:
                        self._compacted = set(map(str, offsets))
                except (DecodeError, UnicodeDecodeError) as error:
                    self.note(name, f"not a checkpoint: {error}")

    async def check_partition(self, name: str) -> None:
        directory = f"{self._directory}/{name}"
        self.result.partition_count += 1
        for file_name in await self._disk.list_dir(directory):
            if _LEFTOVER.fullmatch(file_name):
                self.note(f"{name}/{file_name}", "left by an interrupted operation; the next start completes or removes it")
        bases, marked = [await offsets_of(self._disk, directory, suffix) for suffix in (LOG_SUFFIX, DAMAGED_SUFFIX)]
        for base, following in pairwise([*bases, -1]):
            await self._check_segment(name, base, following, is_marked=base in marked)
        await self._check_epochs(name)
        for offset in await offsets_of(self._disk, directory, SNAPSHOT_SUFFIX):
            path = f"{name}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"
            try:
                ProducerStates.from_snapshot(await self._disk.read_file(f"{self._directory}/{path}"))
            except DecodeError as error:
                self.note(path, f"{error.message}; it will be rebuilt from the log")

    async def _check_segment(self, name: str, base: int, following: int, *, is_marked: bool) -> None:
        path = f"{name}/{file_stem(base)}{LOG_SUFFIX}"
        file = await self._disk.open(f"{self._directory}/{path}")
        end_offset = -1 if name in self._compacted else following
        found = await scrub(file, ScrubRequest(file.path, base, end_offset, file.size), no_pace)
        self.result.segment_count += 1
        self.result.batch_count += found.batch_count
        self.result.size_bytes += file.size
        if found.damage is not None:
            if is_marked:
                left = "a broker has found that, and leaves the partition offline at its next start"
                self._damage(path, f"after {found.whole_bytes} intact bytes: {found.damage}; {left}")
            elif not self._was_clean and (following < 0 or following > self._recovery_points.get(name, 0)):
                cut_bytes = file.size - found.whole_bytes
                text = f"torn after {found.whole_bytes} bytes; the next start cuts off the {cut_bytes} after them: {found.damage}"
                self.note(path, text, cut_bytes=cut_bytes)
            else:
                self._damage(path, f"after {found.whole_bytes} intact bytes: {found.damage}")
        if following >= 0 and found.damage is None:  # the last segment's indexes are only written when it is closed
            await self._check_indexes(name, base, found)

    async def _check_indexes(self, name: str, base: int, found: Scrubbed) -> None:
        stem = f"{name}/{file_stem(base)}"
        file = await self._disk.open(f"{self._directory}/{stem}{LOG_SUFFIX}")
        walk = BatchWalk(file, 0, found.whole_bytes)
        last_offset_at: dict[int, int] = {}
        time_at: dict[int, int] = {}
        while (header := await walk.next()) is not None:
            last_offset_at[walk.position] = header.last_offset
            time_at[header.last_offset] = header.max_timestamp
        try:
            data = await self._disk.read_file(f"{self._directory}/{stem}{INDEX_SUFFIX}")
            entries = OffsetIndex.from_bytes(data, base, log_size=found.whole_bytes).entries
            if any(last_offset_at.get(position) != offset for offset, position in entries):
                raise DecodeError("an entry points to a batch that does not exist")
        except (DecodeError, FileNotFoundError) as error:
            self.note(stem + INDEX_SUFFIX, f"does not match the log and will be rebuilt: {error}")
        try:
            times = TimeIndex.from_bytes(await self._disk.read_file(f"{self._directory}/{stem}{TIME_INDEX_SUFFIX}"), base)
            if any(time_at.get(offset) != timestamp for timestamp, offset in times.entries):
                raise DecodeError("an entry has a timestamp that its batch does not have")
            newest = max(time_at.values(), default=-1)
            if newest >= 0 and (times.last is None or times.last[0] != newest):
                raise DecodeError(f"the newest timestamp is {newest}, which it does not list")
        except (DecodeError, FileNotFoundError) as error:
            self.note(stem + TIME_INDEX_SUFFIX, f"does not match the log and will be rebuilt: {error}")

        if await self._disk.exists(path := f"{self._directory}/{stem}{TRANSACTION_INDEX_SUFFIX}"):
            try:
                from_bytes(await self._disk.read_file(path))
            except DecodeError as error:
                self.note(stem + TRANSACTION_INDEX_SUFFIX, f"is damaged and will be rebuilt: {error.message}")

    async def _check_epochs(self, name: str) -> None:
        path = f"{self._directory}/{name}/{CHECKPOINT_NAME}"
        if await self._disk.exists(path):
            try:
                EpochCache.from_text((await self._disk.read_file(path)).decode())
            except (DecodeError, UnicodeDecodeError) as error:
                self.note(f"{name}/{CHECKPOINT_NAME}", f"{error}; it will be rebuilt from the log")
