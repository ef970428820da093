"""What waits between a caller's thread and the loop: prepared records one by one, and runs of usual ones."""

from __future__ import annotations

from typing import Any, Final

from ottla.client.outgoing import Outgoing
from ottla.sync.sent_record import SentRecord

WAITING_OVERHEAD_BYTES: Final = 100
"""The memory of a waiting record beside its content."""


class Single:
    """A prepared record, with its future."""

    __slots__ = ("future", "partition", "record", "topic")

    def __init__(self, record: Outgoing, future: SentRecord) -> None:
        self.topic, self.partition = record.topic, record.partition
        self.record = record
        self.future = future


class Run:
    """Records of one topic and time without a key, in the order of their sending.

    A caller's thread appends the value, and then the future; the loop takes values of which the future is there.
    """

    __slots__ = ("futures", "size_bytes_max", "timestamp_ms", "topic", "values")
    partition = None

    def __init__(self, topic: str, timestamp_ms: int, size_bytes_max: int) -> None:
        self.topic = topic
        self.timestamp_ms = timestamp_ms
        self.size_bytes_max = size_bytes_max
        self.values: list[Any] = []  # bytes
        self.futures: list[SentRecord] = []

    def append(self, value: bytes, future: SentRecord) -> None:
        self.values.append(value)
        self.futures.append(future)

    def take(self, count_max: int) -> tuple[list[Any], list[SentRecord]]:
        """Removes so many records, or all; returns their values and futures."""
        futures = self.futures[:count_max]
        count = len(futures)
        values = self.values[:count]
        del self.futures[:count], self.values[:count]
        return values, futures


def waiting_bytes(values: list[bytes]) -> int:
    """Returns the memory that the rows take while they wait."""
    return sum(map(len, values)) + WAITING_OVERHEAD_BYTES * len(values)
