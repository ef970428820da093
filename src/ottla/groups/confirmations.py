"""Which answers of a group's coordinator are confirmed: a coordinator that has been replaced must not give them (see machine.py).

Others are free: a client that never gets its answer with a member id leaves that id behind, and the group's next rebalance waits for it.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from ottla.errors import ErrorCode
from ottla.groups.consumer.commands import DescribedConsumerGroup
from ottla.machine import Decision, StoredRecord
from ottla.messages.group_records import OffsetCommitKey

CONFIRMATION: Final = StoredRecord(OffsetCommitKey("", "", 0), None)  # no topic has this name
FINAL: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
"""Members end after these, though the group as it is now would have taken them."""


def confirmed(decision: Decision) -> Decision:
    """Returns the decision, with a confirmation if it has no records and an answer of it is final; or free."""
    if decision.records:
        return decision
    if any(_is_final(reply) for _, reply in decision.replies):
        return replace(decision, confirmation=CONFIRMATION)
    if any(getattr(reply, "error_code", 0) == ErrorCode.MEMBER_ID_REQUIRED for _, reply in decision.replies):
        return replace(decision, is_free=True)
    return decision


def _is_final(reply: Any) -> bool:
    if isinstance(reply, DescribedConsumerGroup):  # no member asks for that
        return False
    return getattr(reply, "error_code", 0) in FINAL or not FINAL.isdisjoint(getattr(reply, "error_codes", ()))
