"""The target of a group: what its assignor makes of its members and topics, and the records of what that changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ottla.groups.consumer.assignors import ASSIGNORS, Subscriber
from ottla.groups.consumer.context import Context
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.member import ConsumerMember, Partitions
from ottla.machine import StoredRecord


def subscribed(group: ConsumerGroup, members: Iterable[ConsumerMember]) -> Iterator[str]:
    for member in members:
        yield from group.topics_of(member)


def preferred_assignor(context: Context, members: Iterable[ConsumerMember]) -> str:
    """Returns the configured assignor that most members ask for; the first configured one where no member asks."""
    known = context.settings.assignors
    asked = Counter(member.assignor for member in members if member.assignor in known)
    return max(known, key=lambda name: asked[name])


def new_target(
    context: Context, group: ConsumerGroup, members: Mapping[str, ConsumerMember], previous: Mapping[str, Partitions], epoch: int
) -> tuple[list[StoredRecord], Mapping[str, Partitions]]:
    """Returns the records that make the target of ``epoch``, and each member's target. ``previous`` is what they had."""
    subscribers = {
        member_id: Subscriber(context.topic_ids(group.topics_of(member)), previous.get(member_id, {}), member.instance_id)
        for member_id, member in members.items()
    }
    counts = {topic: context.partition_count(topic) for topic in {topic for found in subscribers.values() for topic in found.topics}}
    target = ASSIGNORS[preferred_assignor(context, members.values())](subscribers, counts)
    changed = [group.target_record(member_id, found) for member_id, found in target.items() if group.targets.get(member_id) != found]
    return [*changed, group.target_epoch_record(epoch, context.now_ms)], target
