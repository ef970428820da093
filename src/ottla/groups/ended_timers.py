"""Which timers end with the members of consumer groups that a decision removes. A draft names the timers of its classic group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ottla.machine import Decision
from ottla.messages.consumer_group_records import ConsumerGroupMemberMetadataKey

Decide = Callable[[Any, int], Decision]


def ending_timers(decide: Decide) -> Decide:
    """Returns the decider such that members whom it removes leave no timer behind: clients choose how long these run."""

    def decided(command: Any, now_ms: int) -> Decision:
        decision = decide(command, now_ms)
        keys = (record.key for record in decision.records if record.value is None)
        gone = [(key.group_id, key.member_id) for key in keys if isinstance(key, ConsumerGroupMemberMetadataKey)]
        ended = tuple((kind, *member) for member in gone for kind in ("session", "revocation", "step"))
        return replace(decision, ended=(*decision.ended, *ended)) if ended else decision

    return decided
