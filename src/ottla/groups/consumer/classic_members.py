"""Members of the classic protocol in a consumer group: while a group is moved from one protocol to the other, it has both.

Such a member joins, syncs and sends heartbeats as ever, and is no leader: its generation is its member epoch, its assignment what the
coordinator has for it. REBALANCE_IN_PROGRESS has it join again whenever it is to take a step; what it owns it says in its subscription (an
eager one owns nothing by then). A classic group becomes a consumer group as it is: each member has what it was assigned last. When the last
member of the consumer protocol has left, the group becomes a classic group again.
Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.members import CONSUMER_PROTOCOL_TYPE, decoded_subscription
from ottla.groups.classic.members import Member as ClassicMember
from ottla.groups.classic.states import GroupState
from ottla.groups.commands import JoinGroup, JoinResult, SyncGroup, SyncResult
from ottla.groups.consumer.context import Context
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.heartbeats import advance
from ottla.groups.consumer.member import ConsumerMember, MemberState, Owned, Partitions
from ottla.groups.consumer.targets import subscribed
from ottla.machine import StoredRecord
from ottla.messages.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ottla.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ottla.metadata.image import ClusterImage
from ottla.wire.compiler import decode_from, encode
from ottla.wire.schema import DECLARATIONS

_VERSION_BYTES = 2


def converted(context: Context, group: ClassicGroup) -> ConsumerGroup | None:
    """Returns the classic group as a consumer group; None when its members are no consumers, or write what cannot be read."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    found = ConsumerGroup(group.group_id)
    members = []
    for member in group.members.values():
        subscription = decoded_subscription(_metadata(group, member))
        assigned = _assigned(context.image, member.assignment, group.generation_id)
        if subscription is None or assigned is None:
            return None
        members.append(
            ConsumerMember(
                member.member_id,
                member.group_instance_id,
                subscription.rack_id,
                member.client_id,
                member.client_host,
                tuple(sorted(set(subscription.topics))),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=_classic(member.session_timeout_ms, member.protocols),
                epoch=group.generation_id,
                previous_epoch=group.generation_id,
                assigned=assigned,
            )
        )
    for record in _records(context, found, members, group.generation_id):
        assert record.key is not None
        found.apply(record.key, record.value)
    return found


def reverted(
    image: ClusterImage, group: ConsumerGroup, gone: Collection[str], now_ms: int, changed: ConsumerMember | None = None
) -> ClassicGroup | None:
    """Returns the group without these members as a classic group, Stable with what its members have; None where it needs the other one.

    It does while it has members of that protocol, or none. ``changed`` is one of its members as it is to be. Source: KIP-848.
    """
    members = group.members if changed is None else group.members | {changed.member_id: changed}
    remaining = [member for member in members.values() if member.member_id not in gone]
    if not remaining or any(member.classic is None for member in remaining):
        return None
    found = ClassicGroup(group.group_id, GroupState.STABLE, now_ms, group.epoch, CONSUMER_PROTOCOL_TYPE)
    for member in remaining:
        assert member.classic is not None, "the others have been looked at"
        found.put(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=tuple((protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols),
                assignment=_assignment(image, member, member.classic.supported_protocols[0]),
            )
        )
    found.protocol_name = found.select_protocol()
    return found


def _records(context: Context, group: ConsumerGroup, members: list[ConsumerMember], epoch: int) -> Iterator[StoredRecord]:
    for member in members:
        yield member.metadata_record(group.group_id)
    yield group.epoch_record(epoch, context.metadata_hash(subscribed(group, members)))
    for member in members:
        yield group.target_record(member.member_id, {topic: frozenset(indexes) for topic, indexes in member.assigned.items()})
    yield group.target_epoch_record(epoch, 0)
    for member in members:
        yield member.current_record(group.group_id)


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    return next((metadata for name, metadata in member.protocols if name == group.protocol_name), member.protocols[0][1])


def _classic(session_timeout_ms: int, protocols: tuple[tuple[str, bytes], ...]) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(session_timeout_ms, [ClassicProtocol(name, metadata) for name, metadata in protocols])


def _assigned(image: ClusterImage, assignment: bytes, epoch: int) -> Owned | None:
    """Returns the assignment by topic id; None for bytes of another kind."""
    if not assignment:
        return {}
    low, high = DECLARATIONS[ConsumerProtocolAssignment].versions
    version = int.from_bytes(assignment[:_VERSION_BYTES], "big", signed=True)
    try:
        found, _ = decode_from(ConsumerProtocolAssignment, min(max(version, low), high), assignment, _VERSION_BYTES)
    except DecodeError:
        return None
    return {
        image.topics[each.topic].topic_id: dict.fromkeys(each.partitions, epoch)
        for each in found.assigned_partitions
        if each.topic in image.topics and each.partitions
    }


def supports(group: ConsumerGroup, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
    """True when the member has a protocol in common with all other classic members."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
        return False
    common = {name for name, _ in protocols}
    for member in group.members.values():
        if member.classic is not None:
            common &= {protocol.name for protocol in member.classic.supported_protocols}
    return bool(common)


def join(context: Context, group: ConsumerGroup, command: JoinGroup, *, are_topics_seen: bool) -> tuple[list[StoredRecord], ConsumerMember]:
    """Joins the member to the group, as a heartbeat has it, and takes it a step further. KafkaError for what is refused."""
    subscription = decoded_subscription(command.protocols[0][1])
    if subscription is None:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the subscription cannot be read")
    known, replaced = _known(context, group, command)
    updated = msgspec.structs.replace(
        known,
        instance_id=command.group_instance_id if command.group_instance_id is not None else known.instance_id,
        rack_id=subscription.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        regex=None,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        assignor=None,
        classic=_classic(command.session_timeout_ms, command.protocols),
    )
    if updated == known:
        updated = known
    return advance(context, group, known, updated, replaced, _owned(context.image, subscription), are_topics_seen=are_topics_seen)


def replaced_static(group: ConsumerGroup, command: JoinGroup) -> ConsumerMember | None:
    """Returns the static member of the consumer protocol in whose place a classic one comes, as a member of its protocol; None else."""
    static = group.static_member(command.group_instance_id)
    if static is None or static.classic is not None or command.member_id:
        return None
    return msgspec.structs.replace(static, classic=_classic(command.session_timeout_ms, command.protocols))


def _known(context: Context, group: ConsumerGroup, command: JoinGroup) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Returns the member, as of a heartbeat; a static one without its id replaces the earlier one at once, as in classic groups."""
    member_id = command.member_id or command.fresh_member_id
    static = group.static_member(command.group_instance_id)
    if static is not None and static.member_id != member_id:
        if command.member_id:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        return msgspec.structs.replace(static, member_id=member_id, epoch=0, previous_epoch=0), static
    if static is not None and static.is_away:
        return msgspec.structs.replace(static, epoch=0, previous_epoch=0), None
    if member_id in group.members:
        return group.members[member_id], None
    if len(group.members) >= context.settings.group_max_size:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    return ConsumerMember(member_id), None


def _owned(image: ClusterImage, subscription: ConsumerProtocolSubscription) -> Partitions:
    return {
        image.topics[found.topic].topic_id: frozenset(found.partitions)
        for found in subscription.owned_partitions
        if found.topic in image.topics and found.partitions
    }


def joined(member: ConsumerMember) -> JoinResult:
    """Returns the answer to a join: the member is no leader, whatever its group is."""
    assert member.classic is not None, "only classic members join that way"
    protocol = member.classic.supported_protocols[0].name
    return JoinResult(ErrorCode.NONE, member.member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, protocol)


def synced(image: ClusterImage, group: ConsumerGroup, command: SyncGroup) -> SyncResult:
    """Returns what the member has; REBALANCE_IN_PROGRESS where a newer target waits for it."""
    member = group.members.get(command.member_id)
    error = error_of(group, command.member_id, command.group_instance_id, command.generation_id)
    if error:
        return SyncResult(error)
    assert member is not None, "an unknown member has an error"
    assert member.classic is not None, "and so has one of the other protocol"
    protocol = member.classic.supported_protocols[0]
    if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or command.protocol_name not in (None, protocol.name):
        return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncResult(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol.name, _assignment(image, member, protocol))


def _assignment(image: ClusterImage, member: ConsumerMember, protocol: ClassicProtocol) -> bytes:
    """Returns what the member has, in the version of its subscription."""
    names: Mapping[bytes, str] = image.topic_names
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(names[topic], sorted(indexes))
        for topic, indexes in sorted(member.assigned.items())
        if topic in names
    ]
    low, high = DECLARATIONS[ConsumerProtocolAssignment].versions
    version = min(max(int.from_bytes(protocol.metadata[:_VERSION_BYTES], "big", signed=True), low), high)
    return version.to_bytes(_VERSION_BYTES, "big") + encode(ConsumerProtocolAssignment(assigned), version)


def error_of(group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
    """Returns NONE for a classic member in its epoch."""
    if error := group.error_of_name(member_id, instance_id):
        return error
    member = group.members[member_id]
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation_id == member.epoch else ErrorCode.ILLEGAL_GENERATION


def has_to_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """True when it is to take a step: there is a newer target, it has something to give up, or what it waits for is free."""
    if member.epoch < group.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.epoch < group.epoch and all(other.classic is not None for other in group.members.values()):
        return True  # no heartbeat of the consumer protocol makes the next target
    return member.state is MemberState.UNRELEASED_PARTITIONS and all(
        group.is_free(topic, index)
        for topic, indexes in group.targets.get(member.member_id, {}).items()
        for index in indexes
        if index not in member.assigned.get(topic, {})
    )
