"""A heartbeat: the member is in the group as it says, the group's epoch and target follow, and the member takes its next step.

A heartbeat that changes nothing writes nothing. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct, field

from ottla.errors import ErrorCode, KafkaError
from ottla.groups.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatResult
from ottla.groups.consumer.context import Context
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.member import JOINING, ConsumerMember, Owned, Partitions
from ottla.groups.consumer.reconciliation import next_step
from ottla.groups.consumer.targets import new_target, subscribed
from ottla.machine import StoredRecord


class Beat(Struct):
    """The consequences of a heartbeat."""

    member: ConsumerMember
    result: ConsumerHeartbeatResult
    records: list[StoredRecord] = field(default_factory=list)
    is_revoking: bool = False
    """It has to give up partitions now, and has its rebalance timeout for that."""


def heartbeat(context: Context, group: ConsumerGroup, command: ConsumerHeartbeat, *, are_topics_seen: bool) -> Beat:
    """Takes a member's heartbeat; KafkaError when it is refused. ``are_topics_seen`` when no topic has changed since the last heartbeat."""
    known, replaced = _known_member(context, group, command)
    updated = _updated(known, command)
    before = group.members.get(updated.member_id)
    if updated is before and are_topics_seen and group.epoch == group.target_epoch and updated.is_reconciled_to(group.target_epoch):
        return Beat(updated, _result(context, group, command, known, updated))  # most are of this kind
    records, moved = advance(context, group, known, updated, replaced, command.owned, are_topics_seen=are_topics_seen)
    result = _result(context, group, command, known, moved)
    return Beat(moved, result, records, is_revoking=bool(moved.revoking) and (moved.revoking, moved.epoch) != (known.revoking, known.epoch))


def advance(
    context: Context,
    group: ConsumerGroup,
    known: ConsumerMember,
    updated: ConsumerMember,
    replaced: ConsumerMember | None,
    owned: Partitions | None,
    *,
    are_topics_seen: bool,
) -> tuple[list[StoredRecord], ConsumerMember]:
    """Advances the group with the member's new state, its epoch and target, and the member a step further; returns the records, too."""
    before = group.members.get(updated.member_id)
    previous = dict(group.targets)
    records: list[StoredRecord] = []
    if replaced is not None:
        records += group.member_tombstones(replaced.member_id)
        previous[updated.member_id] = previous.pop(replaced.member_id, {})
    if before is None or updated is not known:
        records.append(updated.metadata_record(group.group_id))
    if replaced is not None:
        records.append(group.target_record(updated.member_id, previous[updated.member_id]))
    is_changed = not updated.wants_as(known)
    members = with_member(group, updated, replaced)
    records += group.tombstones_of_unused_regexes(members)
    epoch = group.epoch
    if is_changed or not are_topics_seen:
        metadata_hash = context.metadata_hash(subscribed(group, members.values()))
        if is_changed or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(group.epoch_record(epoch, metadata_hash))
    target_epoch, target = group.target_epoch, previous.get(updated.member_id, {})
    if epoch > target_epoch and _may_assign(context, group):
        changes, targets = new_target(context, group, members, previous, epoch)
        records += changes
        target_epoch, target = epoch, targets[updated.member_id]
    topics = context.topic_ids(group.topics_of(updated))
    moved = next_step(updated, target, target_epoch, owned=owned, is_free=group.is_free, subscribed=topics)
    if before is None or not moved.has_as(before):
        records.append(moved.current_record(group.group_id))
    return records, moved


def _result(
    context: Context, group: ConsumerGroup, command: ConsumerHeartbeat, known: ConsumerMember, moved: ConsumerMember
) -> ConsumerHeartbeatResult:
    """Returns the answer, with the assignment for a member that has said everything, or whose assignment has changed."""
    is_full = command.rebalance_timeout_ms != -1 and (command.topics is not None or command.regex is not None) and command.owned is not None
    shows = command.member_epoch == JOINING or is_full or not _same_places(known.assigned, moved.assigned)
    return ConsumerHeartbeatResult(
        ErrorCode.NONE,
        None,
        moved.member_id,
        moved.epoch,
        context.heartbeat_interval_ms(group.group_id),
        {topic: frozenset(indexes) for topic, indexes in moved.assigned.items()} if shows else None,
    )


def _same_places(one: Owned, other: Owned) -> bool:
    return one.keys() == other.keys() and all(one[topic].keys() == other[topic].keys() for topic in one)


def _may_assign(context: Context, group: ConsumerGroup) -> bool:
    """True when a new target may be made. Targets keep a distance, so that members that come together make one; none after an empty one."""
    if not any(group.targets.values()):
        return True
    since_ms = context.now_ms - group.target_timestamp_ms
    return group.target_timestamp_ms == 0 or since_ms < 0 or since_ms >= context.assignment_interval_ms(group.group_id)


def _known_member(context: Context, group: ConsumerGroup, command: ConsumerHeartbeat) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Returns the member before this heartbeat, and the static member that it replaces, which has left for a while."""
    member_id, instance_id, is_joining = command.member_id, command.instance_id, command.member_epoch == JOINING
    member = group.members.get(member_id)
    static = group.static_member(instance_id)
    if static is not None and static.member_id != member_id:
        if not is_joining:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} belongs to member {static.member_id}")
        if not static.is_away and static.classic is None:
            text = f"instance id {instance_id} belongs to member {static.member_id}, which has not left"
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        return msgspec.structs.replace(static, member_id=member_id, epoch=0, previous_epoch=0), static
    if static is not None and static.is_away and is_joining:
        return msgspec.structs.replace(static, epoch=0, previous_epoch=0), None
    if not is_joining and instance_id is not None and static is None:
        member = None
    if member is None:
        if not is_joining:
            what = f"member {member_id}" if instance_id is None else f"instance id {instance_id}"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{what} is not a member of group {group.group_id}")
        if len(group.members) >= context.settings.group_max_size:
            text = f"the group has its maximum of {context.settings.group_max_size} members (group.consumer.max.size)"
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        return ConsumerMember(member_id), None
    if not is_joining:
        _check_epoch(member, command.member_epoch, command.owned)
    return member, None


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Checks the epoch. A member may come with its previous one, if the answer with the new one was lost: it has nothing unassigned."""
    if epoch == member.epoch:
        return
    was_lost = epoch == member.previous_epoch and epoch < member.epoch and owned is not None
    if was_lost and owned is not None and all(indexes <= member.assigned.get(topic, {}).keys() for topic, indexes in owned.items()):
        return
    text = f"member epoch {epoch} is not {member.epoch}, which the coordinator knows: the member must give up its partitions and join again"
    raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _updated(known: ConsumerMember, command: ConsumerHeartbeat) -> ConsumerMember:
    """Returns the member with what the heartbeat says of it; the same one when that is nothing new."""
    updated = msgspec.structs.replace(
        known,
        instance_id=known.instance_id if command.instance_id is None else command.instance_id,
        rack_id=known.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=known.topics if command.topics is None else tuple(sorted(set(command.topics))),
        regex=known.regex if command.regex is None else command.regex or None,
        rebalance_timeout_ms=known.rebalance_timeout_ms if command.rebalance_timeout_ms == -1 else command.rebalance_timeout_ms,
        assignor=known.assignor if command.assignor is None else command.assignor,
        classic=None,
    )
    return known if updated == known else updated


def with_member(group: ConsumerGroup, updated: ConsumerMember, replaced: ConsumerMember | None) -> Mapping[str, ConsumerMember]:
    """Returns the group's members with this one's new state."""
    if replaced is None and group.members.get(updated.member_id) is updated:
        return group.members
    members = group.members | {updated.member_id: updated}
    if replaced is not None:
        del members[replaced.member_id]
    return members
