"""A follower of one partition: what it asks its leader for, and what it makes of the answer.

It says with each fetch which epoch its last record is of. A leader whose history disagrees answers with the end of the largest epoch at or
below that one, and the follower cuts its log there, as often as it takes: nothing is cut because of a high watermark (KIP-101, KIP-279).
An answer counts only in the leader epoch in which it was asked for: what was on its way when the leader changed is dropped (KIP-320).

The high watermark is what the leader says, within what this replica has. What is committed stays committed: it goes back only where the
log itself is cut, as after an unclean election.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from ottla.errors import ErrorCode
from ottla.messages.fetch import PartitionData
from ottla.messages.values import Records
from ottla.replication.high_watermark import HighWatermark
from ottla.types import NO_OFFSET

NEVER: Final = 2**62
_NOT_YET: Final = frozenset(
    {
        *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH),
        *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID),
    }
)
"""What a leader says that has not yet read that it is one."""
_NOT_YET_MS: Final = 50


class FollowedLog(Protocol):
    """The log, as the machine sees it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns ``(epoch, end offset)`` of the largest epoch at or below ``epoch``; ``(-1, -1)`` when it is newer than all known."""
        ...


@dataclass(frozen=True, slots=True)
class Append:
    """The records, which start at the log's end, are appended."""

    records: Records


@dataclass(frozen=True, slots=True)
class Truncate:
    """The log ends at ``end_offset``."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class StartOver:
    """The log is empty and starts at ``offset``: the leader has nothing older."""

    offset: int


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """The leader is asked where its log starts and ends: what was fetched is outside of it. ``on_offsets`` gets the answer."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause until ``until_ms``, because the answer was ``error``. NEVER: until the metadata says more."""

    until_ms: int
    error: ErrorCode


Step = Append | Truncate | StartOver | AskOffsets | Wait | None
"""What is to be done to the log before the next fetch; None for nothing."""


class Followed:
    """The follower of one partition in one leader epoch."""

    __slots__ = (
        "_backoff_ms",
        "_committed",
        "_gap_at",
        "is_caught_up",
        "is_finding_offsets",
        "leader_committed",
        "leader_epoch",
        "leader_id",
        "leader_start_offset",
        "wait_until_ms",
    )  # fmt: skip

    def __init__(self, leader_id: int, leader_epoch: int, *, committed: HighWatermark, backoff_ms: int) -> None:
        self.leader_id: Final = leader_id
        self.leader_epoch: Final = leader_epoch
        self._backoff_ms = backoff_ms
        self._committed = committed  # the partition's
        self.leader_start_offset = NO_OFFSET
        """Below it the leader has nothing left; -1 before its first answer."""
        self.leader_committed = NO_OFFSET
        """Below it the leader says that everything is committed; -1 before its first answer."""
        self.is_caught_up = False
        """Whether this replica has all that its leader said was committed; a throttle holds back only one that has not."""
        self.wait_until_ms = 0
        self.is_finding_offsets = False
        self._gap_at = NO_OFFSET  # the leader has sent what is after a gap that starts here, and it was not taken

    @property
    def high_watermark(self) -> int:
        return self._committed.offset

    def end(self) -> None:
        """Ends the following of this leader: a late answer moves nothing."""
        self._committed = self._committed.detached()

    def may_fetch(self, now_ms: int) -> bool:
        return now_ms >= self.wait_until_ms and not self.is_finding_offsets

    def on_answer(self, asked_offset: int, asked_epoch: int, data: PartitionData, log: FollowedLog, now_ms: int) -> Step:
        """Takes the leader's answer to a fetch at ``asked_offset`` that was made in leader epoch ``asked_epoch``."""
        if asked_epoch != self.leader_epoch or asked_offset != log.log_end_offset:
            return None  # late: the log, or its leader, is another one by now
        error = ErrorCode(data.error_code)
        if error != ErrorCode.NONE:
            return self._on_error(error, now_ms)
        if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            return Truncate(self._agreed(data.diverging_epoch.epoch, data.diverging_epoch.end_offset, log))
        self.leader_start_offset = max(self.leader_start_offset, data.log_start_offset)
        self.leader_high_watermark(data.high_watermark, log)
        return Append(data.records) if data.records else None

    def leader_high_watermark(self, offset: int, log: FollowedLog) -> None:
        """Takes the leader's word that everything below is committed; what this replica has of it, is."""
        self._committed.raise_to(min(offset, log.log_end_offset))
        self.leader_committed = offset
        self.is_caught_up = offset <= log.log_end_offset

    def on_gap(self, offset: int) -> None:
        """Notes that the leader's first batch starts after that offset, at which it was asked; nothing was taken of the answer."""
        self._gap_at = offset

    def has_seen_gap_at(self, offset: int) -> bool:
        """True when the leader is asked there again after it had sent a gap.

        A real gap, from a time in which the topic was compacted, is sent again. A false gap is not: it appears when the file was cut and
        rewritten while the answer left, and a leader that cuts its log no longer leads in this epoch, and answers with an error.
        """
        return offset == self._gap_at

    def _on_error(self, error: ErrorCode, now_ms: int) -> Step:
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.is_finding_offsets = True
            return AskOffsets()
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self.wait_until_ms = NEVER
        else:
            self.wait_until_ms = now_ms + (min(_NOT_YET_MS, self._backoff_ms) if error in _NOT_YET else self._backoff_ms)
        return Wait(self.wait_until_ms, error)

    def _agreed(self, epoch: int, end_offset: int, log: FollowedLog) -> int:
        """Returns up to where the log may agree with the leader's, which has ``epoch`` up to ``end_offset``, and then a later one.

        An epoch that this log does not have lets it cut to the end of the one before, and ask again.
        """
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_end < 0:
            return min(end_offset, log.log_end_offset)
        return min(own_end, log.log_end_offset) if own_epoch != epoch else min(own_end, end_offset, log.log_end_offset)

    def on_offsets(self, start_offset: int, end_offset: int, log: FollowedLog) -> Step:
        """Takes the leader's start and end: a longer log is cut, and a log that ends too early starts again."""
        self.is_finding_offsets = False
        if log.log_end_offset > end_offset:
            return Truncate(max(end_offset, log.log_start_offset)) if end_offset > log.log_start_offset else StartOver(end_offset)
        if start_offset > log.log_end_offset:
            return StartOver(start_offset)
        return None

    def on_no_offsets(self, now_ms: int) -> None:
        """Notes that the leader did not say; it is asked again after the backoff."""
        self.is_finding_offsets = False
        self.wait_until_ms = now_ms + self._backoff_ms
