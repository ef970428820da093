"""What the transaction coordinator has others do.

Effects are carried out when the decision's records are committed; a load's effects, when all that was loaded is: a new leader may have
a decision that no other replica has, and be replaced before any has.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

from ottla.errors import ErrorCode
from ottla.types import TopicPartition

FIRST_DELAY_MS: Final = 20
LAST_DELAY_MS: Final = 1000


class WriteMarkers(msgspec.Struct, frozen=True):
    """An effect that asks the leaders, in ``delay_ms``, to end the transaction; their answers come back as ``AnswerMarkers``."""

    transactional_id: str
    producer_id: int
    producer_epoch: int  # of the marker
    is_commit: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]
    delay_ms: int = 0


class TakeProducerId(msgspec.Struct, frozen=True):
    """The command is decided again with a ``fresh_producer_id``; those who wait for it go on waiting."""

    command: Any


class ReportMarker(msgspec.Struct, frozen=True):
    """A broker has answered what it should not: a line in the log, and a metric."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: TopicPartition
    error_code: int


class Verdict(Enum):
    """The meaning of an answer to a marker for its partition."""

    DONE = "done"
    REFUSED = "its transaction of this epoch has ended otherwise: done, and reported"
    AGAIN = "asked again, of the leader of that moment"
    UNFORESEEN = "asked again, and reported"
    SUPERSEDED = "a newer coordinator decides about the transaction: this one does nothing more"


_VERDICTS: Final = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.REFUSED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Verdict.SUPERSEDED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Verdict.AGAIN,  # a broker that lags must not drop a marker
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Verdict.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS: Verdict.AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Verdict.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.AGAIN,
    ErrorCode.KAFKA_STORAGE_ERROR: Verdict.AGAIN,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.AGAIN,
    ErrorCode.NOT_COORDINATOR: Verdict.AGAIN,
    ErrorCode.NETWORK_EXCEPTION: Verdict.AGAIN,
}


def verdict_of(error_code: int) -> Verdict:
    """Returns the verdict, never that a marker is given up: a transaction that is prepared ends."""
    return _VERDICTS.get(ErrorCode(error_code), Verdict.UNFORESEEN) if error_code in _CODES else Verdict.UNFORESEEN


_CODES: Final = frozenset(map(int, ErrorCode))


def delay_ms(attempts: int) -> int:
    """Returns the delay before the next try, after so many that came to nothing."""
    return min(LAST_DELAY_MS, FIRST_DELAY_MS << min(attempts - 1, 10))
