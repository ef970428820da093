"""From the files of a directory to a log.

After a clean stop the files are trusted: only the end of the last segment is read. Otherwise every segment from the recovery
point on is walked with its CRCs. The first batch that is torn, or does not follow the one before it, ends the log: that
segment is cut there, and the segments after it are removed. Before the recovery point everything was synced. What was
appended since is therefore a prefix of what was written, never with a hole. Each cut is reported to the caller.

A log that would be cut below the recovery point was not torn, it is damaged: it is refused, and nothing of it is touched. Only
compaction leaves offsets without a batch, and only below the recovery point, too.

Recovery may itself be cut short and run again: segments are removed from the last one backwards, after that the cut is made
and synced, and each state in between is one from which the same log is found.

The leader epochs of walked segments are taken from their batches. Producers come from the newest usable snapshot and the
batches after it. An index is rebuilt where the segment was walked, and elsewhere when it is missing or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.errors import DecodeError, StorageError
from ottla.ports import Disk
from ottla.records.epochs import EpochCache
from ottla.storage.compaction.swap import settle
from ottla.storage.directory.epoch_file import read_epochs
from ottla.storage.producers import SNAPSHOT_SUFFIX, ProducerStates
from ottla.storage.recovery.producer_replay import replay_producers
from ottla.storage.segment.files import INDEX_SUFFIX, LOG_SUFFIX, SUFFIXES, TIME_INDEX_SUFFIX, file_stem, offsets_of
from ottla.storage.segment.segment import Segment, remove_segments


@dataclass(frozen=True, slots=True)
class Cut:
    """What a recovery removed: the end of a file, or all of it. The log ended at ``end_offset`` there."""

    path: str
    size: int  # what is left of the file
    lost_bytes: int
    end_offset: int


@dataclass(slots=True)
class Recovered:
    """What a directory holds. At least one segment; the last one is open for appending."""

    segments: list[Segment]
    end_offset: int
    epochs: EpochCache
    walked: int  # the number of segments, from the end, that were walked rather than trusted
    cuts: Sequence[Cut] = ()


async def recover(
    disk: Disk,
    folder: str,
    *,
    start_offset: int,
    recovery_point: int,
    clean: bool,
    index_interval_bytes: int,
    is_durable: bool = True,
) -> Recovered:
    """The segments of the directory, cut to what is intact; a first, empty one when there was none, durable unless the caller sees to that.

    StorageError when the log is damaged below the recovery point.
    """
    await settle(disk, folder)
    bases = await _drop_below(disk, folder, await offsets_of(disk, folder, LOG_SUFFIX), start_offset)
    await _remove_strays(disk, folder, bases)
    if not bases:
        if recovery_point > start_offset:
            raise StorageError(f"{folder} has no segment, and was synced up to offset {recovery_point}")
        segment = await Segment.open(disk, folder, start_offset, index_interval_bytes=index_interval_bytes, create=True)
        if is_durable:
            await disk.sync_dir(folder)
        return Recovered([segment], start_offset, EpochCache(), 1)
    segments = [await Segment.open(disk, folder, base, index_interval_bytes=index_interval_bytes) for base in bases]
    epochs = await read_epochs(disk, folder)
    if clean and epochs is not None:
        end_offset = await _load(segments)
        if end_offset is not None:
            return Recovered(segments, end_offset, epochs, 0)
    first = 0 if epochs is None else max(0, sum(base <= recovery_point for base in bases) - 1)
    epochs = epochs or EpochCache()
    _trust(segments[:first])
    count = len(segments)
    cuts: list[Cut] = []
    end_offset = await _walk(disk, folder, segments, first, epochs, recovery_point, cuts)
    return Recovered(segments, end_offset, epochs, min(count, len(segments)) - first, cuts)


def _trust(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.size = segment.file.size
        segment.unload()


async def _load(segments: Sequence[Segment]) -> int | None:
    """The end offset when the files are as a clean stop left them."""
    try:
        end_offset = await segments[-1].load_tail()
    except (DecodeError, FileNotFoundError):
        return None
    _trust(segments[:-1])
    return end_offset


async def _walk(
    disk: Disk, folder: str, segments: list[Segment], first: int, epochs: EpochCache, recovery_point: int, cuts: list[Cut]
) -> int:
    """The end offset; ``segments`` is shorter, and ``cuts`` lists by what, when something was torn."""
    epochs.truncate_from_end(segments[first].base_offset)
    expected = segments[first].base_offset
    for index in range(first, len(segments)):
        segment = segments[index]
        if segment.base_offset != expected and segment.base_offset > recovery_point:  # the end of the one before was lost
            _refuse_below(recovery_point, expected, segments[index - 1])
            await _remove_cut(disk, folder, segments, index, expected, cuts)
            break
        expected = await _walk_segment(segment, epochs)
        if segment.size < segment.file.size:
            _refuse_below(recovery_point, expected, segment)
            await _remove_cut(disk, folder, segments, index + 1, expected, cuts)
            cuts.append(Cut(segment.path, segment.size, segment.file.size - segment.size, expected))
            await segment.file.truncate(segment.size)
            await segment.file.sync()
            break
    else:
        _refuse_below(recovery_point, expected, segments[-1])
    for segment in segments[first:-1]:
        await segment.write_indexes()
        segment.unload()
    return expected


def _refuse_below(recovery_point: int, end_offset: int, segment: Segment) -> None:
    if end_offset < recovery_point:
        text = f"is damaged: it is intact up to offset {end_offset} (byte {segment.size}), and was synced up to offset {recovery_point}"
        raise StorageError(f"{segment.path} {text}; nothing was removed")


async def _remove_cut(disk: Disk, folder: str, segments: list[Segment], first: int, end_offset: int, cuts: list[Cut]) -> None:
    cuts += [Cut(segment.path, 0, segment.file.size, end_offset) for segment in segments[first:]]
    await remove_segments(disk, folder, segments, first)


async def _walk_segment(segment: Segment, epochs: EpochCache) -> int:
    """The offset after the segment's last complete batch; the segment counts what came before."""
    counted = await segment.count(segment.file.size, is_recovery=True)
    segment.take_over(counted)
    for epoch, start_offset in counted.epochs:
        epochs.assign(epoch, start_offset)
    return counted.end_offset


async def _drop_below(disk: Disk, folder: str, bases: list[int], start_offset: int) -> list[int]:
    """The bases without those of segments entirely below the start, whose files are deleted.

    Their deletion was cut short. A power cut may have kept an older one and not the next, and what has a hole is not a log.
    """
    count = sum(following <= start_offset for following in bases[1:])
    for base in bases[:count]:
        for suffix in SUFFIXES:
            if await disk.exists(path := f"{folder}/{file_stem(base)}{suffix}"):
                await disk.remove(path)
    return bases[count:]


async def _remove_strays(disk: Disk, folder: str, bases: Sequence[int]) -> None:
    """Indexes whose log no longer exists: a removal was interrupted."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        for offset in await offsets_of(disk, folder, suffix):
            if offset not in bases:
                await disk.remove(f"{folder}/{file_stem(offset)}{suffix}")


async def rebuild_producers(
    disk: Disk,
    folder: str,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    now_ms: int,
    is_durable: bool = True,
    remembered: tuple[int, bytes] | None = None,
) -> ProducerStates:
    """The producers at ``end_offset``; snapshots of states outside the log are removed, durably unless the caller sees to that.

    ``remembered`` is a snapshot in memory, and its offset.
    """
    producers, offset, is_changed = ProducerStates(), -1, False
    for snapshot in reversed(await offsets_of(disk, folder, SNAPSHOT_SUFFIX)):
        path = f"{folder}/{file_stem(snapshot)}{SNAPSHOT_SUFFIX}"
        if not segments[0].base_offset <= snapshot <= end_offset:
            await disk.remove(path)
            is_changed = True
        elif offset < 0:
            try:
                producers, offset = ProducerStates.from_snapshot(await disk.read_file(path)), snapshot
            except DecodeError:
                await disk.remove(path)
                is_changed = True
    if is_changed and is_durable:  # one that came back after a power cut would speak of batches that the log has lost
        await disk.sync_dir(folder)
    if remembered is not None and remembered[0] > max(offset, segments[0].base_offset - 1):
        offset, producers = remembered[0], ProducerStates.from_snapshot(remembered[1])
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
            continue
        found = await segment.find(offset) if offset > segment.base_offset else (0, None)
        if found is not None and offset < end_offset:
            producers = await replay_producers(disk, producers, segment, found[0], now_ms)
    return producers
