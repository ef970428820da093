"""What becomes of a batch once its broker has answered, or has not: a table of the answer's code and of what else is known."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ottla.errors import RETRIABLE, ErrorCode


class Verdict(Enum):
    """The fate of a batch."""

    STORED = auto()
    AGAIN = auto()  # it is sent again under its number
    FOLLOWS = auto()  # as AGAIN: it was refused only because an earlier batch of the partition had failed
    RENUMBERED = auto()  # as AGAIN, under a fresh producer id: the broker's sequence no longer matches
    DIVIDED = auto()  # its records go in smaller batches
    GIVEN_UP = auto()


_STORED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_SEQUENCE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH})


def verdict_of(code: int, *, count: int, is_over: bool, is_idempotent: bool, is_transactional: bool, follows_a_failure: bool) -> Verdict:
    """Returns the fate of a batch of so many records.

    ``is_over`` says that its delivery.timeout.ms is over, ``follows_a_failure`` that an earlier batch of the partition is queued again,
    so that this one left a gap. In a transaction a fresh producer id would take its records out of it.
    """
    if code in _STORED:
        return Verdict.STORED
    if is_over:
        return Verdict.GIVEN_UP
    if code in _TOO_LARGE:
        return Verdict.DIVIDED if count > 1 else Verdict.GIVEN_UP
    if code in RETRIABLE or code == ErrorCode.BROKER_NOT_AVAILABLE:
        return Verdict.AGAIN
    if is_idempotent and code in _SEQUENCE_LOST:
        if follows_a_failure and (not is_transactional or code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            return Verdict.FOLLOWS
        return Verdict.GIVEN_UP if is_transactional else Verdict.RENUMBERED
    return Verdict.GIVEN_UP
