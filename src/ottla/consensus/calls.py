"""What voters and observers of the metadata log say to each other, as flat values.

One request is about one log, so topics and partitions of the wire are left to ``wire_form``. Every answer has the leader and the epoch
that its sender knows: that is how news of an election spreads. Offsets are exclusive ends; -1 is "unknown". Source: KIP-595, 630, 853,
996, 1166.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ottla.types import NO_LEADER
from ottla.wire.schema import ZERO_UUID

NO_HIGH_WATERMARK_SAID = 2**63 - 1
"""In a Fetch of a version before 18: such a replica does not want news of the high watermark alone."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """A message between replicas: frozen, compared by value, hashable."""


class EpochEnd(Call, frozen=True):
    """An epoch, and the offset at which it ends in the sender's log."""

    epoch: int
    end_offset: int


class SnapshotId(Call, frozen=True, order=True):
    """All records below ``end_offset``, of which the last one is of ``epoch``. Ordered as Kafka compares logs: by epoch, then by offset."""

    epoch: int
    end_offset: int


class Span(Call, frozen=True):
    """Consecutive records of one epoch, from ``base_offset`` to before ``end_offset``."""

    epoch: int
    base_offset: int
    end_offset: int


class Vote(Call, frozen=True):
    """The candidate wants the vote for ``epoch``; ``is_pre`` asks only whether it would get the one for the epoch after it (KIP-996)."""

    epoch: int
    candidate_id: int
    last_epoch: int
    end_offset: int
    is_pre: bool = False
    candidate_directory: bytes = ZERO_UUID
    voter_id: int = -1
    voter_directory: bytes = ZERO_UUID
    cluster_id: str | None = None


class BeginEpoch(Call, frozen=True):
    """The leader of the epoch makes itself known."""

    epoch: int
    leader_id: int
    voter_id: int = -1
    voter_directory: bytes = ZERO_UUID
    cluster_id: str | None = None


class EndEpoch(Call, frozen=True):
    """The leader of the epoch resigns; the voter with the longest log should be the next one."""

    epoch: int
    leader_id: int
    successors: tuple[int, ...] = ()
    cluster_id: str | None = None


class Fetch(Call, frozen=True):
    """A replica has everything below ``fetch_offset``, durably if it is a voter, and the last record of that is of ``last_epoch``."""

    epoch: int
    replica_id: int
    fetch_offset: int
    last_epoch: int
    high_watermark: int = NO_HIGH_WATERMARK_SAID
    max_wait_ms: int = 0
    max_bytes: int = 2**31 - 1
    replica_directory: bytes = ZERO_UUID
    cluster_id: str | None = None
    number: int = 0
    """Counts the sender's fetches, and is not on the wire: an answer belongs to the request of the same number."""


class FetchSnapshot(Call, frozen=True):
    """A replica wants the bytes of a snapshot from ``position`` on."""

    epoch: int
    replica_id: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int = 2**31 - 1
    replica_directory: bytes = ZERO_UUID
    cluster_id: str | None = None
    number: int = 0


Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot


class Answer(Call, frozen=True):
    """An answer. ``error`` is an ErrorCode; ``epoch`` and ``leader_id`` are what the sender knows, -1 without a leader."""

    error: int = 0
    epoch: int = -1
    leader_id: int = NO_LEADER


class VoteAnswer(Answer, frozen=True):
    is_granted: bool = False


class BeginEpochAnswer(Answer, frozen=True):
    pass


class EndEpochAnswer(Answer, frozen=True):
    pass


class FetchAnswer(Answer, frozen=True):
    """Records that start at the fetch offset, or where the logs part, or which snapshot to fetch first.

    ``records`` is what the shell reads and appends; the machine looks at ``spans`` alone.
    """

    high_watermark: int = -1
    log_start_offset: int = 0
    diverging: EpochEnd | None = None
    snapshot_id: SnapshotId | None = None
    spans: tuple[Span, ...] = ()
    records: Any = None


class FetchSnapshotAnswer(Answer, frozen=True):
    """``size`` bytes in all; ``data`` are those from ``position`` on, and may end inside a batch."""

    snapshot_id: SnapshotId | None = None
    size: int = 0
    position: int = 0
    data: Any = b""
