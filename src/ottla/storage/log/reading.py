"""Lookups in a log: by offset, by time.

A fetch at the tail starts where an earlier one ended: a few such places are remembered, so that it needs neither an index
nor a header. Other fetches look the place up; the last of those places are remembered too, for others who read the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Disk, FileRegion
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.storage.log.time_search import first_record_at, largest_from
from ottla.storage.segment.segment import Segment

PLACES_MAX: Final = 16
LOOKED_UP_MAX: Final = 4
_LOADED_MAX: Final = 2


class LogSlice(msgspec.Struct, gc=False):
    """Batches of one segment, as they are in the file; the last one may be cut off by the byte limit."""

    region: FileRegion
    first_offset: int  # base offset of the first batch: at or before the one asked for
    end_offset: int  # after the last batch, or some batches later where it is cut off
    aborted: bytes | bytearray = b""  # the ``START`` of each aborted transaction, where they were asked for


class FoundTimestamp(NamedTuple):
    """A record found by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class Places:
    """The positions of batches for some offsets that are likely to be read; also, the closed segments whose indexes are loaded."""

    __slots__ = ("_loaded", "_looked_up", "_places", "generation")

    def __init__(self) -> None:
        self.generation = 0
        """Grows with each ``forget``: what a read looked up before one is not to be remembered after it."""
        self._places: dict[int, tuple[Segment, int]] = {}
        self._looked_up: dict[int, tuple[Segment, int]] = {}  # apart: who reads a backlog does not push out those at the tail
        self._loaded: list[Segment] = []

    def get(self, offset: int) -> tuple[Segment, int] | None:
        return self._places.get(offset) or self._looked_up.get(offset)

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Remembers where a read ended, and the next one starts."""
        _keep(self._places, PLACES_MAX, offset, (segment, position))

    def looked_up(self, offset: int, segment: Segment, position: int) -> None:
        """Remembers where a batch was found."""
        _keep(self._looked_up, LOOKED_UP_MAX, offset, (segment, position))

    def forget(self) -> None:
        """Forgets all places: offsets may mean other batches from now on."""
        self.generation += 1
        self._places.clear()
        self._looked_up.clear()
        self._loaded.clear()

    def keep_loaded(self, segment: Segment) -> None:
        """Notes a look into the closed segment; the indexes of the segment looked into longest ago leave memory."""
        if segment in self._loaded:
            return
        self._loaded.append(segment)
        if len(self._loaded) > _LOADED_MAX:
            self._loaded.pop(0).unload()


def _keep(places: dict[int, tuple[Segment, int]], count_max: int, offset: int, place: tuple[Segment, int]) -> None:
    if offset not in places and len(places) >= count_max:
        del places[next(iter(places))]
    places[offset] = place


def segment_index(segments: Sequence[Segment], offset: int) -> int:
    """Returns the segment that would hold ``offset``; -1 below all of them."""
    low, high = 0, len(segments)
    if segments[-1].base_offset <= offset:
        return high - 1
    while low < high:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


async def locate(segments: Sequence[Segment], places: Places, offset: int) -> tuple[Segment, int, int] | None:
    """Returns ``(segment, position, base offset)`` of the batch that holds ``offset``, or of the next one; None at the end."""
    place = places.get(offset)
    if place is not None and (place[1] < place[0].size or place[0] is segments[-1]):
        return place[0], place[1], offset
    passed: tuple[Segment, int, int] | None = None
    for segment in segments[max(0, segment_index(segments, offset)) :]:  # a copy: the list may change while a lookup waits
        found = await segment.find(offset)
        if segment is not segments[-1]:
            places.keep_loaded(segment)
        if found is None:
            continue
        position, header = found
        located = segment, position, header.base_offset
        if header.count or segment is segments[-1] or position + header.size_bytes < segment.size:
            return located
        passed = passed or located  # compaction left nothing but the end of the segment: what follows is in a later one, if anywhere
    return passed


async def read_slice(
    segments: Sequence[Segment], places: Places, offset: int, *, max_bytes: int, end_offset: int, log_end_offset: int, min_one_message: bool
) -> LogSlice | None:
    """Reads as ``PartitionLog.read``, where ``offset < end_offset <= log_end_offset``.

    A look-up may wait for the disk, and the log may grow, roll or be truncated meanwhile: its size and its end are taken
    together, before that, and batches that came later are not seen.
    """
    last, last_size, generation = segments[-1], segments[-1].size, places.generation
    found = await locate(segments, places, offset)
    if found is None or found[2] >= end_offset:
        return None
    segment, position, first_offset = found
    if first_offset == offset and segment is last and places.generation == generation and places.get(offset) is None:
        places.looked_up(offset, segment, position)
    end, next_offset = segment.size, log_end_offset  # where the readable part of the segment ends, and the offset there
    if segment is last:
        end = min(last_size, segment.size)  # it may have been truncated
    else:
        following = segment_index(segments, segment.base_offset) + 1
        if following < len(segments):
            next_offset = segments[following].base_offset
    if end_offset < next_offset:
        bound = await locate(segments, places, end_offset)
        if bound is not None and bound[0] is segment and bound[1] < end:
            _, end, next_offset = bound
    length = end - position
    if length <= 0:
        return None
    if length > max_bytes:
        length = max_bytes
        if min_one_message:
            header = read_header(await (await segment.opened()).pread(position, HEADER_SIZE))
            length = min(max(length, header.size_bytes), end - position)
        if length < HEADER_SIZE:
            return None
        next_offset = segment.bound_of(position + length, next_offset)
    elif segment is last and places.generation == generation:
        places.remember(next_offset, segment, end)
    return LogSlice((await segment.opened()).region(position, length), first_offset, next_offset)


async def find_timestamp(
    disk: Disk, segments: Sequence[Segment], places: Places, timestamp_ms: int, *, start_offset: int
) -> FoundTimestamp | None:
    """Returns the first record at or after both; the record itself, also inside a compressed batch."""
    for segment in list(segments):
        await segment.load()
        if segment is not segments[-1]:
            places.keep_loaded(segment)
        if segment.max_timestamp < timestamp_ms:
            continue
        found = await segment.find_time(timestamp_ms)
        while found is not None:
            position, header = found
            if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
                batch = await (await segment.opened()).pread(position, header.size_bytes)
                record = await first_record_at(disk, batch, header, timestamp_ms, start_offset)
                if record.offset >= 0:
                    return FoundTimestamp(record.timestamp_ms, record.offset, header.leader_epoch)
            found = await segment.find(max(header.last_offset + 1, start_offset))
    return None


async def largest_timestamp(disk: Disk, segments: Sequence[Segment], places: Places, *, start_offset: int) -> int:
    """Returns the largest time of all records at or after ``start_offset``; -1 when none has a time."""
    largest = -1
    for segment in list(segments):
        await segment.load()
        if segment is not segments[-1]:
            places.keep_loaded(segment)
        if segment.base_offset >= start_offset:
            largest = max(largest, segment.max_timestamp)
        elif segment.max_timestamp > largest:
            largest = max(largest, await _largest_from(disk, segment, start_offset))
    return largest


async def _largest_from(disk: Disk, segment: Segment, start_offset: int) -> int:
    """Returns the largest time of a segment whose start was deleted: its headers say it, except for the batch in which the log starts."""
    largest, found = -1, await segment.find(start_offset)
    while found is not None:
        position, header = found
        if header.base_offset >= start_offset:
            largest = max(largest, header.max_timestamp)
        elif header.max_timestamp > largest:
            batch = await (await segment.opened()).pread(position, header.size_bytes)
            largest = max(largest, await largest_from(disk, batch, header, start_offset))
        found = await segment.find(header.last_offset + 1)
    return largest


def check_range(offset: int, *, log_start_offset: int, log_end_offset: int) -> None:
    if not log_start_offset <= offset <= log_end_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in the log's {log_start_offset} to {log_end_offset}")
