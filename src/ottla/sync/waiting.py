"""What waits between a caller's thread and the loop: prepared records one by one, and runs of usual ones."""

from __future__ import annotations

from ottla.client.outgoing import Outgoing
from ottla.sync.sent_record import SentRecord


class Single:
    """A prepared record, with its future."""

    __slots__ = ("future", "partition", "record", "topic")

    def __init__(self, record: Outgoing, future: SentRecord) -> None:
        self.topic, self.partition = record.topic, record.partition
        self.record = record
        self.future = future


class Run:
    """Records of one topic and time without a key, each with its future; in the order of their sending."""

    __slots__ = ("rows", "size_bytes_max", "timestamp_ms", "topic")
    partition = None

    def __init__(self, topic: str, timestamp_ms: int, size_bytes_max: int) -> None:
        self.topic = topic
        self.timestamp_ms = timestamp_ms
        self.size_bytes_max = size_bytes_max
        self.rows: list[tuple[bytes, SentRecord]] = []
