"""How a group's leader divides partitions among the members: Kafka's four strategies, by their names on the wire.

=====================  ==============================================================================================
range                  topic by topic: neighbouring partitions, the first members get one more where it does not come out
roundrobin             all partitions of all topics in turn
sticky                 balanced, and a member keeps its partitions as far as balance allows
cooperative-sticky     the same, in two rounds: a partition that moves is first given up, and assigned only afterwards
=====================  ==============================================================================================

Members are sorted by their instance ids first, then of their member ids, so that a static member that comes back
under a new id finds the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.client.sticky import Subscription, all_partitions, divide_stickily, without_moving
from ottla.types import TopicPartition

__all__ = ["ASSIGNORS", "COOPERATIVE", "Assignment", "Subscription", "assign"]

Assignment = dict[str, list[TopicPartition]]
"""By member id; every member is in it."""
Assignor = Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignment]


def assign(name: str, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    """Returns the partitions of each member. ``partition_counts`` are by topic; a topic that it lacks does not exist."""
    return ASSIGNORS[name](subscriptions, partition_counts)


def assign_range(subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in subscriptions}
    members = _in_order(subscriptions)
    for topic in sorted(partition_counts):
        readers = [member_id for member_id in members if topic in subscriptions[member_id].topics]
        if not readers:
            continue
        share, extra = divmod(partition_counts[topic], len(readers))
        begin = 0
        for at, member_id in enumerate(readers):
            end = begin + share + (at < extra)
            assignment[member_id] += [TopicPartition(topic, partition) for partition in range(begin, end)]
            begin = end
    return assignment


def assign_round_robin(subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in subscriptions}
    members = _in_order(subscriptions)
    at = 0
    for partition in all_partitions(subscriptions, partition_counts):
        while partition.topic not in subscriptions[members[at]].topics:
            at = (at + 1) % len(members)
        assignment[members[at]].append(partition)
        at = (at + 1) % len(members)
    return assignment


def assign_cooperative(subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Assignment:
    return without_moving(divide_stickily(subscriptions, partition_counts), subscriptions)


def _in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    def place(member_id: str) -> tuple[bool, str]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(subscriptions, key=place)


ASSIGNORS: Final[dict[str, Assignor]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": divide_stickily,
    "cooperative-sticky": assign_cooperative,
}
COOPERATIVE: Final = frozenset({"cooperative-sticky"})
"""Strategies whose members keep their partitions while a rebalance is on."""
