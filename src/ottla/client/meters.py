"""What a client has done so far, for an application that shows it: counts since the client was made, and what is so at the moment.

Rates and averages are the reader's to make, of two readings. Kafka's Java client has the same figures under other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.positions import Positions
from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """Counts of a producer, since it was made; the last three are present values. Bytes are counted before compression."""

    records_acknowledged: int
    """Records that are stored; with ``acks=0``, that were sent."""
    bytes_acknowledged: int
    """The size of these records."""
    batches_acknowledged: int
    """The batches in which they were sent."""
    records_failed: int
    """Those whose futures raise."""
    batches_retried: int
    """Sends of a batch after its first one."""
    batches_divided: int
    """Batches that a topic did not take for their size, and that were sent in smaller ones."""
    requests: int
    """Requests with batches that were answered or have failed."""
    request_ms_total: int
    """The time of all requests, each from its send to its answer or failure."""
    request_ms_max: int
    """The longest of these times."""
    requests_in_flight: int
    """Requests that wait for their answers."""
    buffer_used_bytes: int
    """Bytes of records that are not acknowledged yet."""
    buffer_limit_bytes: int
    """``buffer_memory``, above which ``send`` waits for room."""


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """Counts of a consumer, since it was made."""

    records: int
    """Records that ``poll`` or the iteration has handed out."""
    bytes_fetched: int
    """The size of the batches in the answers to fetches, compressed where they are."""
    fetches: int
    """Fetches that were answered; a broker answers after ``fetch_max_wait_ms`` also where there is nothing new."""
    fetches_failed: int
    """Fetches that were refused as a whole, or not answered."""
    commits: int
    """Commits that were stored, automatic or not."""
    rebalances: int
    """Assignments that the group has given to this consumer, the first one among them."""
    lag: Mapping[TopicPartition, int]
    """How many offsets the position is behind the end, of each assigned partition of which a fetch was answered."""


class ProducerMeters:
    """Counters of a sender."""

    __slots__ = (
        "batches",
        "bytes",
        "divided",
        "failed",
        "in_flight",
        "records",
        "request_ms_max",
        "request_ms_total",
        "requests",
        "retried",
    )

    def __init__(self) -> None:
        self.records = self.bytes = self.batches = self.failed = self.retried = self.divided = 0
        self.requests = self.in_flight = self.request_ms_total = self.request_ms_max = 0

    def on_acknowledged(self, record_count: int, size_bytes: int) -> None:
        """Counts a batch that is stored."""
        self.batches += 1
        self.records += record_count
        self.bytes += size_bytes

    def on_sent(self, now_ms: int) -> int:
        """Counts a request that is sent now."""
        self.in_flight += 1
        return now_ms

    def on_answered(self, took_ms: int) -> None:
        """Counts a request that is over, answered or not."""
        self.in_flight -= 1
        self.requests += 1
        self.request_ms_total += took_ms
        self.request_ms_max = max(self.request_ms_max, took_ms)

    def reading(self, *, used_bytes: int, limit_bytes: int) -> ProducerMetrics:
        """Returns the present figures."""
        return ProducerMetrics(
            self.records, self.bytes, self.batches, self.failed, self.retried, self.divided,
            self.requests, self.request_ms_total, self.request_ms_max, self.in_flight, used_bytes, limit_bytes,
        )  # fmt: skip


class ConsumerMeters:
    """Counters of a consumer's parts."""

    __slots__ = ("bytes", "commits", "failed", "fetches", "rebalances", "records")

    def __init__(self) -> None:
        self.records = self.bytes = self.fetches = self.failed = self.commits = self.rebalances = 0

    def reading(self, positions: Positions, unread: Mapping[TopicPartition, int]) -> ConsumerMetrics:
        """Returns the present figures; ``unread`` are the first offsets that an iteration has not come to, where there are some."""
        lag = {
            partition: max(0, state.high_watermark - unread.get(partition, state.position))
            for partition, state in ((each, positions.of(each)) for each in positions)
            if state.position is not None and state.high_watermark >= 0
        }
        return ConsumerMetrics(self.records, self.bytes, self.fetches, self.failed, self.commits, self.rebalances, lag)
