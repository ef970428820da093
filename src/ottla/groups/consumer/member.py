"""One member of a consumer group: what it wants, and how far it has come towards its target.

``assigned`` are the partitions that it may own, ``revoking`` those that it has to give up and has not said so yet: no other member may
have either. A partition is with the epoch in which the member got it, so that its commits count until it loses it.
Source: KIP-848, KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec

from ottla.machine import StoredRecord
from ottla.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    CurrentPartitions,
    TargetPartitions,
)

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by the id of their topic; no topic is there without one."""
Owned = dict[bytes, dict[int, int]]
"""Partitions by the id of their topic, each with the member epoch in which it was assigned."""

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2


class MemberState(IntEnum):
    """The value is what records have."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ConsumerMember(msgspec.Struct, frozen=True):
    """``epoch`` is what its next heartbeat must have; of a static member that has left for a while it is -2."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()  # sorted
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = {}
    revoking: Owned = {}

    @property
    def is_away(self) -> bool:
        return self.epoch == LEAVING_FOR_A_WHILE

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def wants_as(self, other: ConsumerMember) -> bool:
        return self.topics == other.topics and self.regex == other.regex

    def has_as(self, other: ConsumerMember) -> bool:
        """True when the record of what it has is the same."""
        return (self.epoch, self.previous_epoch, self.state) == (other.epoch, other.previous_epoch, other.state) and (
            self.assigned == other.assigned and self.revoking == other.revoking
        )

    # -- as records ---------------------------------------------------------------------------------------------------

    def metadata_record(self, group_id: str) -> StoredRecord:
        """Returns the record of what it wants, and who it is."""
        value = ConsumerGroupMemberMetadataValue(
            self.instance_id, self.rack_id, self.client_id, self.client_host, list(self.topics), self.regex,
            self.rebalance_timeout_ms, self.assignor, self.classic,
        )  # fmt: skip
        return StoredRecord(ConsumerGroupMemberMetadataKey(group_id, self.member_id), value)

    def current_record(self, group_id: str) -> StoredRecord:
        """Returns the record of what it has."""
        value = ConsumerGroupCurrentMemberAssignmentValue(
            self.epoch, self.previous_epoch, self.state, stored_owned(self.assigned), stored_owned(self.revoking)
        )
        return StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, self.member_id), value)

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        return msgspec.structs.replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Returns the member with the stored state; an unknown, later state has it reconciled again."""
        known = value.state in MemberState.__members__.values()
        return msgspec.structs.replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNRELEASED_PARTITIONS,
            assigned=owned_from(value.assigned_partitions, value.member_epoch),
            revoking=owned_from(value.partitions_pending_revocation, value.member_epoch),
        )


def stored_owned(owned: Owned) -> list[CurrentPartitions]:
    return [CurrentPartitions(topic, sorted(found), [found[index] for index in sorted(found)]) for topic, found in sorted(owned.items())]


def stored_partitions(partitions: Partitions) -> list[TargetPartitions]:
    return [TargetPartitions(topic, sorted(found)) for topic, found in sorted(partitions.items())]


def owned_from(stored: Iterable[CurrentPartitions], member_epoch: int) -> Owned:
    """Returns the stored partitions. Without epochs (of Kafka before 4.3), all were assigned in the member's."""
    owned: Owned = {}
    for found in stored:
        epochs = found.assignment_epochs
        if epochs is None or len(epochs) != len(found.partitions):
            owned[found.topic_id] = dict.fromkeys(found.partitions, member_epoch)
        else:
            owned[found.topic_id] = dict(zip(found.partitions, epochs, strict=True))
    return {topic: partitions for topic, partitions in owned.items() if partitions}


def partitions_from(stored: Iterable[TargetPartitions]) -> Partitions:
    return {found.topic_id: frozenset(found.partitions) for found in stored if found.partitions}
