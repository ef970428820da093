"""Which log is to be compacted next: a decision over values.

A log is due when the dirty share of what can be cleaned is above ``min.cleanable.dirty.ratio``, or when a record in its dirty
part has waited for ``max.compaction.lag.ms``. Among the logs that are due, a log that has waited too long comes first, then
the dirtiest. Source: Kafka's documentation of log compaction, KIP-354.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K")


class Dirtiness(Struct, Generic[K], frozen=True):
    """The dirtiness of one log, in bytes.

    ``overdue_ms``: how long ago its oldest dirty record should have been cleaned; 0 or less: not yet.
    """

    key: K
    clean_bytes: int
    dirty_bytes: int
    ratio_min: float
    overdue_ms: int

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.ratio > self.ratio_min)


def dirtiest(logs: Iterable[Dirtiness[K]]) -> K | None:
    """Returns the key of the log to be cleaned next; None when none is due."""
    due = [log for log in logs if log.is_due]
    return max(due, key=lambda log: (max(0, log.overdue_ms), log.ratio)).key if due else None
