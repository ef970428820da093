"""One consumer group, as its records say: epochs, members, the target of each, and which member has which partition.

``epoch`` rises when the members, their subscriptions or the topics change; the target is made for an epoch, ``target_epoch``, and members
come to that one after the other. Between the two the group is Assigning; until all members have come, Reconciling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

import msgspec

from ottla.errors import ErrorCode
from ottla.groups.commands import CommitInTransaction, CommitOffsets, OffsetToCommit
from ottla.groups.consumer.member import ConsumerMember, Partitions, partitions_from, stored_partitions
from ottla.machine import StoredRecord
from ottla.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.wire.schema import Stored

NO_EPOCH_GIVEN = -1
FIRST_EPOCH = 1
"""Of a group, with an empty target: a member that joins gets an epoch, although its first target may come later (KAFKA-20268)."""


class ConsumerGroupState(Enum):
    """The value is the name that is shown."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The topics that the expression matched at that time. ``version`` is the end offset of the metadata then."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """Changed by ``apply`` alone."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.targets: dict[str, Partitions] = {}
        self.owners: dict[tuple[bytes, int], str] = {}  # topic id, partition -> who has it, or has to give it up
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False  # of Kafka before 4.1

    # -- what it knows ------------------------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self.static_members.get(instance_id, ""))

    def error_of_name(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Returns NONE for a member, of this instance id if one is given."""
        static = self.static_member(instance_id)
        if static is not None and static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        is_unknown = member_id not in self.members or (instance_id is not None and static is None)
        return ErrorCode.UNKNOWN_MEMBER_ID if is_unknown else ErrorCode.NONE

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) not in self.owners

    def topics_of(self, member: ConsumerMember) -> Iterator[str]:
        """Yields the names that it subscribes to, also by a resolved expression; some may come twice, and need not exist."""
        yield from member.topics
        if member.regex and member.regex in self.regexes:
            yield from self.regexes[member.regex].topics

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(topic for member in self.members.values() for topic in self.topics_of(member))

    def error_of_commit(self, command: CommitOffsets) -> ErrorCode:
        """Returns the error: members commit in their epoch, or an earlier one in which they already had the partitions (KIP-1251).

        Any client may commit for a group without members.
        """
        if command.generation_id <= NO_EPOCH_GIVEN and not self.members:
            return ErrorCode.NONE
        member = self.members.get(command.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not command.speaks_epochs and member.classic is None:
            return ErrorCode.UNSUPPORTED_VERSION
        return _error_of_epoch(member, command.generation_id, command.offsets)

    def error_of_transactional_commit(self, command: CommitInTransaction) -> ErrorCode:
        """Returns the error as ``error_of_commit``, of a producer, which may commit without saying for which member (KIP-447).

        Producers know ILLEGAL_GENERATION alone.
        """
        names_member = command.generation_id > NO_EPOCH_GIVEN or command.member_id or command.group_instance_id is not None
        if not names_member or (command.generation_id <= NO_EPOCH_GIVEN and not self.members):
            return ErrorCode.NONE
        member = self.members.get(command.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = _error_of_epoch(member, command.generation_id, command.offsets)
        return ErrorCode.ILLEGAL_GENERATION if error == ErrorCode.STALE_MEMBER_EPOCH else error

    def error_of_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Returns NONE for a client that does not claim to be a member; one that does must be one, in its epoch."""
        if member_id is None and member_epoch <= NO_EPOCH_GIVEN:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    # -- retention of its offsets (``offsets.RetainedGroup``) ---------------------------------------------------------

    @property
    def empty_since_ms(self) -> int | None:
        return None

    def read_topics(self) -> frozenset[str] | None:
        return self.subscribed_topics()

    # -- what changes it ----------------------------------------------------------------------------------------------

    def apply(self, key: Stored, value: Stored | None) -> None:
        """Applies a record of this group, except the tombstone of the group itself."""
        match key, value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupPartitionMetadataKey(), _:
                self.has_partition_metadata = value is not None
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
                self._put(self.members.get(key.member_id, ConsumerMember(key.member_id)).with_metadata(value))
            case ConsumerGroupMemberMetadataKey(), _:
                self._remove(key.member_id)
            case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
                self.target_epoch, self.target_timestamp_ms = value.assignment_epoch, value.assignment_timestamp
            case ConsumerGroupTargetAssignmentMetadataKey(), _:
                self.target_epoch = NO_EPOCH_GIVEN
            case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue():
                self.targets[key.member_id] = partitions_from(value.topic_partitions)
            case ConsumerGroupTargetAssignmentMemberKey(), _:
                self.targets.pop(key.member_id, None)
            case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue():
                self._put(self.members.get(key.member_id, ConsumerMember(key.member_id)).with_current(value))
            case ConsumerGroupCurrentMemberAssignmentKey(), _:
                if key.member_id in self.members:
                    self._put(msgspec.structs.replace(self.members[key.member_id], epoch=-1, previous_epoch=-1, assigned={}, revoking={}))
            case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
                self.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            case ConsumerGroupRegularExpressionKey(), _:
                self.regexes.pop(key.regular_expression, None)
            case _:
                raise AssertionError(f"{type(key).__name__} is no record of a consumer group")

    def _put(self, member: ConsumerMember) -> None:
        self._release(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for place in places(member):
            self.owners[place] = member.member_id

    def _remove(self, member_id: str) -> None:
        self._release(member_id)
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _release(self, member_id: str) -> None:
        if member_id in self.members:
            for place in places(self.members[member_id]):
                if self.owners.get(place) == member_id:  # in a log that was compacted, its next owner may come first
                    del self.owners[place]

    # -- as records ---------------------------------------------------------------------------------------------------

    def epoch_record(self, epoch: int, metadata_hash: int) -> StoredRecord:
        return StoredRecord(ConsumerGroupMetadataKey(self.group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))

    def target_record(self, member_id: str, target: Partitions) -> StoredRecord:
        key = ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id)
        return StoredRecord(key, ConsumerGroupTargetAssignmentMemberValue(stored_partitions(target)))

    def target_epoch_record(self, epoch: int, now_ms: int) -> StoredRecord:
        key = ConsumerGroupTargetAssignmentMetadataKey(self.group_id)
        return StoredRecord(key, ConsumerGroupTargetAssignmentMetadataValue(epoch, now_ms))

    def regex_record(self, regex: str, resolved: ResolvedRegex | None) -> StoredRecord:
        key = ConsumerGroupRegularExpressionKey(self.group_id, regex)
        if resolved is None:
            return StoredRecord(key, None)
        value = ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms)
        return StoredRecord(key, value)

    def tombstones_of_unused_regexes(self, members: Mapping[str, ConsumerMember]) -> list[StoredRecord]:
        """Returns tombstones of the expressions that none of the members has."""
        if not self.regexes:
            return []
        used = {member.regex for member in members.values()}
        return [self.regex_record(regex, None) for regex in self.regexes if regex not in used]

    def member_tombstones(self, member_id: str) -> list[StoredRecord]:
        """Returns the tombstones of a member; what it had is free."""
        return [
            StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id), None),
            StoredRecord(ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), None),
            StoredRecord(ConsumerGroupMemberMetadataKey(self.group_id, member_id), None),
        ]

    def tombstones(self) -> list[StoredRecord]:
        """Returns the tombstones of the group, and of all its members."""
        records = [record for member_id in self.members for record in self.member_tombstones(member_id)]
        records += [
            StoredRecord(ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), None)
            for member_id in self.targets.keys() - self.members
        ]
        records.append(StoredRecord(ConsumerGroupTargetAssignmentMetadataKey(self.group_id), None))
        records += [self.regex_record(regex, None) for regex in self.regexes]
        if self.has_partition_metadata:
            records.append(StoredRecord(ConsumerGroupPartitionMetadataKey(self.group_id), None))
        return [*records, StoredRecord(ConsumerGroupMetadataKey(self.group_id), None)]

    def records(self) -> Iterator[StoredRecord]:
        """Yields the records that rebuild the group."""
        for member in self.members.values():
            yield member.metadata_record(self.group_id)
        for regex, resolved in self.regexes.items():
            yield self.regex_record(regex, resolved)
        yield self.epoch_record(self.epoch, self.metadata_hash)
        for member_id, target in self.targets.items():
            yield self.target_record(member_id, target)
        yield self.target_epoch_record(self.target_epoch, self.target_timestamp_ms)
        for member in self.members.values():
            yield member.current_record(self.group_id)


def places(member: ConsumerMember) -> Iterable[tuple[bytes, int]]:
    """Yields the partitions that no other member may have."""
    for owned in (member.assigned, member.revoking):
        for topic_id, indexes in owned.items():
            for index in indexes:
                yield topic_id, index


def _error_of_epoch(member: ConsumerMember, epoch: int, offsets: Iterable[OffsetToCommit]) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    if epoch > member.epoch:
        return stale
    is_held = all(_is_held(member, offset, epoch) for offset in offsets)
    return ErrorCode.NONE if is_held else stale


def _is_held(member: ConsumerMember, offset: OffsetToCommit, epoch: int) -> bool:
    """True when the member had the partition in that epoch, and has not lost it since."""
    owned = member.assigned.get(offset.topic_id, {}) | member.revoking.get(offset.topic_id, {})
    return offset.partition in owned and owned[offset.partition] <= epoch
