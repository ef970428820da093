"""A consumer group as administrators see it."""

from __future__ import annotations

from ottla.groups.consumer.commands import DescribedConsumer, DescribedConsumerGroup
from ottla.groups.consumer.context import Context
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.member import ConsumerMember
from ottla.groups.consumer.targets import preferred_assignor


def described(context: Context, group: ConsumerGroup) -> DescribedConsumerGroup:
    assignor = preferred_assignor(context, group.members.values())
    members = tuple(_described(group, member) for member in group.members.values())
    return DescribedConsumerGroup(0, None, group.state.value, group.epoch, group.target_epoch, assignor, members)


def _described(group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumer:
    """Describes the member. It still has what it was asked to give up; an expression that it does not use is empty, as Kafka shows it."""
    held = {
        topic: frozenset((*member.assigned.get(topic, ()), *member.revoking.get(topic, ()))) for topic in member.assigned | member.revoking
    }
    return DescribedConsumer(
        member.member_id, member.instance_id, member.rack_id, member.epoch, member.client_id, member.client_host,
        member.topics, member.regex or "", held, group.targets.get(member.member_id, {}), member.classic is not None,
    )  # fmt: skip
