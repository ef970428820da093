"""Which segments are old enough to go: by time, by size. Decisions over values; nothing is deleted here.

Whole segments go, oldest first, and only while the next one is due as well. Source: Kafka's documentation of ``retention.ms``
and ``retention.bytes``.
"""

from __future__ import annotations

from collections.abc import Sequence


def is_expired(newest_ms: int, *, now_ms: int, retention_ms: int) -> bool:
    """Whether all is older than ``retention_ms`` (-1: never) of which the newest is of ``newest_ms``."""
    return 0 <= retention_ms < now_ms - newest_ms


def count_beyond_size(closed: Sequence[int], last: int, *, retention_bytes: int) -> int:
    """How many closed segments may go, oldest first, so that what stays still is ``retention_bytes`` (-1: no limit) or more.

    Sizes in bytes; ``last`` is the segment that is open for appending.
    """
    surplus = sum(closed) + last - retention_bytes
    count = 0
    if retention_bytes >= 0:
        while count < len(closed) and surplus >= closed[count]:
            surplus -= closed[count]
            count += 1
    return count
