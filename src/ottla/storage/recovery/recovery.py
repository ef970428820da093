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
batches after it. An index is rebuilt where the segment was walked, and elsewhere when it is missing or wrong; that of aborted
transactions, which is not missed where there are none, from the producers and the batches of the segment. The segment before one that is
still empty was closed a moment before the crash: that index is rebuilt there, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ottla.errors import DamagedLog, DecodeError, StorageError
from ottla.ports import Disk
from ottla.records.epochs import EpochCache
from ottla.storage.compaction.swap import settle
from ottla.storage.directory.epoch_file import read_epochs
from ottla.storage.producers import SNAPSHOT_SUFFIX, ProducerStates
from ottla.storage.recovery.producer_replay import replay_producers
from ottla.storage.segment.files import INDEX_SUFFIXES, LOG_SUFFIX, SUFFIXES, TRANSACTION_INDEX_SUFFIX, file_stem, offsets_of
from ottla.storage.segment.segment import Segment, remove_segments
from ottla.storage.segment.transaction_blocks import Block, blocks_of, scan_blocks
from ottla.storage.segment.transaction_index import Transaction, TransactionIndex, to_bytes


class Cut(Struct, frozen=True):
    """The bytes that a recovery removed: the end of a file, or all of it. The log ended at ``end_offset`` there."""

    path: str
    size: int  # what is left of the file
    lost_bytes: int
    end_offset: int


class Recovered(Struct):
    """The contents of a directory: at least one segment, of which the last one is open for appending."""

    segments: list[Segment]
    end_offset: int
    epochs: EpochCache
    walked: int  # the number of segments, from the end, that were walked rather than trusted
    cuts: Sequence[Cut] = ()


async def recover(
    disk: Disk,
    directory: str,
    *,
    start_offset: int,
    recovery_point: int,
    clean: bool,
    index_interval_bytes: int,
    is_durable: bool = True,
) -> Recovered:
    """Returns the segments of the directory, cut to what is intact; a first, empty one when there was none, durable unless the caller sees
    to that.

    DamagedLog when the log is damaged below the recovery point.
    """
    await settle(disk, directory)
    bases = await _drop_below(disk, directory, await offsets_of(disk, directory, LOG_SUFFIX), start_offset)
    with_aborted = await _remove_strays(disk, directory, bases)
    if not bases:
        if recovery_point > start_offset:
            raise StorageError(f"{directory} has no segment, and was synced up to offset {recovery_point}")
        segment = await Segment.open(disk, directory, start_offset, index_interval_bytes=index_interval_bytes, create=True)
        if is_durable:
            await disk.sync_dir(directory)
        return Recovered([segment], start_offset, EpochCache(), 1)
    segments = [await Segment.open(disk, directory, base, index_interval_bytes=index_interval_bytes) for base in bases]
    for segment in segments:
        segment.has_aborted = segment.base_offset in with_aborted
    epochs = await read_epochs(disk, directory)
    if clean and epochs is not None:
        end_offset = await _load(segments)
        if end_offset is not None:
            return Recovered(segments, end_offset, epochs, 0)
    first = 0 if epochs is None else max(0, sum(base <= recovery_point for base in bases) - 1)
    epochs = epochs or EpochCache()
    _trust(segments[:first])
    count = len(segments)
    cuts: list[Cut] = []
    end_offset = await _walk(disk, directory, segments, first, epochs, recovery_point, cuts)
    return Recovered(segments, end_offset, epochs, min(count, len(segments)) - first, cuts)


def _trust(segments: Sequence[Segment]) -> None:
    for segment in segments:
        segment.size = segment.file.size
        segment.unload()


async def _load(segments: Sequence[Segment]) -> int | None:
    """Returns the end offset when the files are as a clean stop left them."""
    try:
        end_offset = await segments[-1].load_tail()
    except (DecodeError, FileNotFoundError):
        return None
    _trust(segments[:-1])
    return end_offset


async def _walk(
    disk: Disk, directory: str, segments: list[Segment], first: int, epochs: EpochCache, recovery_point: int, cuts: list[Cut]
) -> int:
    """Returns the end offset. When something was torn, ``segments`` is shorter, and ``cuts`` lists what was cut, and why."""
    epochs.truncate_from_end(segments[first].base_offset)
    expected = segments[first].base_offset
    for index in range(first, len(segments)):
        segment = segments[index]
        if segment.base_offset != expected and segment.base_offset > recovery_point:  # the end of the one before was lost
            _refuse_below(recovery_point, expected, segments[index - 1])
            await _remove_cut(disk, directory, segments, index, expected, cuts)
            break
        expected = await _walk_segment(segment, epochs)
        if segment.size < segment.file.size:
            _refuse_below(recovery_point, expected, segment)
            await _remove_cut(disk, directory, segments, index + 1, expected, cuts)
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
        raise DamagedLog(segment.path, f"{text}; nothing was removed")


async def _remove_cut(disk: Disk, directory: str, segments: list[Segment], first: int, end_offset: int, cuts: list[Cut]) -> None:
    cuts += [Cut(segment.path, 0, segment.file.size, end_offset) for segment in segments[first:]]
    await remove_segments(disk, directory, segments, first)


async def _walk_segment(segment: Segment, epochs: EpochCache) -> int:
    """Returns the offset after the segment's last complete batch; the segment counts what came before."""
    counted = await segment.count(segment.file.size, is_recovery=True)
    segment.take_over(counted)
    for epoch, start_offset in counted.epochs:
        epochs.assign(epoch, start_offset)
    return counted.end_offset


async def _drop_below(disk: Disk, directory: str, bases: list[int], start_offset: int) -> list[int]:
    """Deletes the segments that are entirely below the start. Returns the bases of the others.

    A crash interrupted their deletion. A power cut may have kept an older segment and not the next, and a log must not have a hole.
    """
    count = sum(following <= start_offset for following in bases[1:])
    for base in bases[:count]:
        for suffix in SUFFIXES:
            if await disk.exists(path := f"{directory}/{file_stem(base)}{suffix}"):
                await disk.remove(path)
    return bases[count:]


async def _remove_strays(disk: Disk, directory: str, bases: Sequence[int]) -> set[int]:
    """Removes indexes without a log, left by an interrupted removal. Returns which segments have a file of aborted transactions."""
    with_aborted = set[int]()
    for suffix in INDEX_SUFFIXES:
        for offset in await offsets_of(disk, directory, suffix):
            if offset not in bases:
                await disk.remove(f"{directory}/{file_stem(offset)}{suffix}")
            elif suffix == TRANSACTION_INDEX_SUFFIX:
                with_aborted.add(offset)
    return with_aborted


async def rebuild_producers(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    now_ms: int,
    is_durable: bool = True,
    remembered: tuple[int, bytes] | None = None,
    read_from: int | None = None,
) -> tuple[ProducerStates, list[Transaction]]:
    """Returns the producers at ``end_offset``, and the transactions that were aborted in what was read for that.

    Snapshots of states outside the log are removed, durably unless the caller sees to that. ``remembered`` is a snapshot in memory, and
    its offset. Of ``read_from`` on all is read, whatever newer snapshots there are.
    """
    offsets = await offsets_of(disk, directory, SNAPSHOT_SUFFIX)
    outside = [offset for offset in offsets if not segments[0].base_offset <= offset <= end_offset]
    for offset in outside:
        await disk.remove(_snapshot_path(directory, offset))
    offsets = [offset for offset in offsets if offset not in outside]
    producers, offset, damaged = await _newest_snapshot(disk, directory, offsets, end_offset if read_from is None else read_from)
    if (outside or damaged) and is_durable:  # one that came back after a power cut would speak of batches that the log has lost
        await disk.sync_dir(directory)
    if remembered is not None and remembered[0] > max(offset, segments[0].base_offset - 1):
        offset, producers = remembered[0], ProducerStates.from_snapshot(remembered[1])
    return (producers, []) if offset == end_offset else await _replay(disk, segments, producers, offset, now_ms)


async def read_aborted(
    disk: Disk, directory: str, segments: Sequence[Segment], replayed: Sequence[Transaction], *, walked: int
) -> tuple[list[Block], TransactionIndex]:
    """Returns what closed segments have of aborted transactions, and the entries of the last one: of trusted segments from their files, of
    the ``walked`` last ones as they were ``replayed``.

    Closed segments that were walked, or whose file is damaged or may have lost its name, have a new file.
    """
    blocks: list[Block] = []
    # Names of files are durable before the next segment takes a byte: of the one before an empty one it may have an older file, or none.
    trusted = len(segments) - walked - (walked == 1 and segments[-1].size == 0)
    for index, segment in enumerate(segments):
        is_closed = index + 1 < len(segments)
        if index < len(segments) - walked:
            try:
                if not is_closed:
                    return blocks, TransactionIndex.from_bytes(await segment.read_transaction_index())
                if index < trusted:
                    if segment.has_aborted:
                        blocks += await scan_blocks(disk, segment.transaction_index_path, segment.base_offset)
                    continue
            except DecodeError:
                pass
            offsets = await offsets_of(disk, directory, SNAPSHOT_SUFFIX)
            producers, offset, _ = await _newest_snapshot(disk, directory, offsets, segment.base_offset)
            _, found = await _replay(disk, segments[: index + 1], producers, offset, 0)
        else:
            found = list(replayed)
        found = [ended for ended in found if ended.last_offset >= segment.base_offset]
        if is_closed:
            found = [ended for ended in found if ended.last_offset < segments[index + 1].base_offset]
        if not is_closed:
            return blocks, TransactionIndex(found)
        data = to_bytes(found)
        await _replace_transaction_index(disk, directory, segment, data)
        blocks += blocks_of(segment.base_offset, data)
    raise AssertionError("a log has a last segment")


async def _replace_transaction_index(disk: Disk, directory: str, segment: Segment, data: bytes) -> None:
    """Leaves the old file or the new one after a power cut, and the new one after that: an empty one would be believed."""
    if data:
        await disk.write_file_atomic(segment.transaction_index_path, data)
        segment.has_aborted = True
    elif segment.has_aborted:
        await segment.write_transaction_index(b"")
        await disk.sync_dir(directory)


def _snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"


async def _newest_snapshot(disk: Disk, directory: str, offsets: Sequence[int], at_most: int) -> tuple[ProducerStates, int, bool]:
    """Returns the newest usable snapshot of ``offsets`` and its offset, -1 without one; whether damaged ones were removed."""
    is_changed = False
    for offset in reversed(offsets):
        if offset <= at_most:
            try:
                return ProducerStates.from_snapshot(await disk.read_file(_snapshot_path(directory, offset))), offset, is_changed
            except DecodeError:
                await disk.remove(_snapshot_path(directory, offset))
                is_changed = True
    return ProducerStates(), -1, is_changed


async def _replay(
    disk: Disk, segments: Sequence[Segment], producers: ProducerStates, offset: int, now_ms: int
) -> tuple[ProducerStates, list[Transaction]]:
    """Returns the producers at the end of the segments, from ``offset`` on, and what was aborted there."""
    aborted: list[Transaction] = []
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
            continue
        found = await segment.find(offset) if offset > segment.base_offset else (0, None)
        if found is not None:
            producers, ended = await replay_producers(disk, producers, segment, found[0], now_ms)
            aborted += ended
    return producers, aborted
