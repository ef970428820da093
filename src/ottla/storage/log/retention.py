"""Retention: which segments of a log are due for deletion, by time or by size. ``PartitionLog`` deletes them.

Entire segments are deleted, oldest first, and only while the next one is due as well. Source: Kafka's documentation of
``retention.ms`` and ``retention.bytes``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.storage.config import LogConfig
from ottla.storage.log.segments import LogSegments
from ottla.storage.segment.segment import Segment


async def retained_from(segments: LogSegments, *, config: LogConfig, start_offset: int, now_ms: int) -> tuple[int, bool]:
    """Returns the base offset of the oldest segment that retention keeps, and whether the last segment is kept only because it grows."""
    found = list(segments.all)  # the list may change while a look-up waits
    count = sum(following.base_offset <= start_offset for following in found[1:])
    if config.is_deleted:
        *closed, last = [segment.size for segment in found]
        count = max(count, count_beyond_size(closed, last, retention_bytes=config.retention_bytes))
        while count < len(found) and await _is_expired(segments, found[count], config.retention_ms, now_ms):
            count += 1
    is_last_due = count == len(found)
    return found[count - is_last_due].base_offset, is_last_due


async def _is_expired(segments: LogSegments, segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if segment.size == 0:  # compaction left nothing of it, or it is the last one and has nothing yet
        return segment is not segments.all[-1]
    return is_expired(await segments.newest_ms(segment), now_ms=now_ms, retention_ms=retention_ms)


def is_expired(newest_ms: int, *, now_ms: int, retention_ms: int) -> bool:
    """True when all is older than ``retention_ms`` (-1: never), of which the newest is of ``newest_ms``."""
    return 0 <= retention_ms < now_ms - newest_ms


def count_beyond_size(closed: Sequence[int], last: int, *, retention_bytes: int) -> int:
    """Returns how many closed segments may be deleted, oldest first, so that at least ``retention_bytes`` (-1: no limit) stay.

    Sizes in bytes; ``last`` is the segment that is open for appending.
    """
    surplus = sum(closed) + last - retention_bytes
    count = 0
    if retention_bytes >= 0:
        while count < len(closed) and surplus >= closed[count]:
            surplus -= closed[count]
            count += 1
    return count
