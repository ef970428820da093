"""The sticky division: balanced first, then as few moves as possible.

When all members want the same topics, each gets ``floor(partitions / members)``, and as many as do not come out evenly get
one more. Each member keeps what it owns up to its share; the rest is divided among those below theirs, in order of member
id. When the members want different topics, each free partition goes to the least loaded member that wants it, scarce ones
first, and then partitions move from fuller to emptier members until no move brings two members closer together.

An ownership counts when no other member claims the partition with the same or a newer generation: a member that missed a
rebalance may still claim what others now have. Source: KIP-54, KIP-341, KIP-429.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a member wants, and its partitions from the generation it was in; -1 when that is not known."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    group_instance_id: str | None = None


def divide_stickily(subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    if not subscriptions:
        return {}
    partitions = all_partitions(subscriptions, partition_counts)
    owned = _owned(subscriptions, frozenset(partitions))
    wants = {frozenset(topic for topic in subscription.topics if topic in partition_counts) for subscription in subscriptions.values()}
    if len(wants) == 1:
        return _divide_evenly(partitions, owned)
    return _divide_by_wants(partitions, owned, {member_id: frozenset(sub.topics) for member_id, sub in subscriptions.items()})


def all_partitions(subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """Returns every partition that a member wants, in order of topic and number."""
    topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    return [TopicPartition(topic, index) for topic in sorted(topics & partition_counts.keys()) for index in range(partition_counts[topic])]


def without_moving(
    assignment: dict[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """Returns what can be assigned at once: a partition that another member still has must be given up first."""
    claims: dict[TopicPartition, set[str]] = {}
    for member_id, subscription in subscriptions.items():
        for partition in subscription.owned:
            claims.setdefault(partition, set()).add(member_id)
    return {
        member_id: [partition for partition in partitions if member_id in claims.get(partition, {member_id})]
        for member_id, partitions in assignment.items()
    }


def _owned(subscriptions: Mapping[str, Subscription], existing: frozenset[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Returns for each member what it rightly owns and still wants."""
    generations: dict[TopicPartition, list[int]] = {}
    for subscription in subscriptions.values():
        for partition in set(subscription.owned):
            generations.setdefault(partition, []).append(subscription.generation_id)

    def is_owner(subscription: Subscription, partition: TopicPartition) -> bool:
        claimed = generations[partition]
        return subscription.generation_id == max(claimed) and claimed.count(subscription.generation_id) == 1

    return {
        member_id: [
            partition
            for partition in dict.fromkeys(subscription.owned)
            if partition in existing and partition.topic in subscription.topics and is_owner(subscription, partition)
        ]
        for member_id, subscription in sorted(subscriptions.items())
    }


def _divide_evenly(partitions: list[TopicPartition], owned: dict[str, list[TopicPartition]]) -> dict[str, list[TopicPartition]]:
    share, extra_count = divmod(len(partitions), len(owned))
    assignment: dict[str, list[TopicPartition]] = {}
    below: deque[str] = deque()  # members that have less than their share
    for member_id, mine in owned.items():
        size = min(len(mine), share)
        if len(mine) > share and extra_count:
            size += 1
            extra_count -= 1
        assignment[member_id] = mine[:size]
        if size < share:
            below.append(member_id)
    candidates = deque(member_id for member_id, mine in assignment.items() if len(mine) == share)  # for one more
    taken = {partition for mine in assignment.values() for partition in mine}
    for partition in partitions:
        if partition in taken:
            continue
        member_id = below.popleft() if below else candidates.popleft()
        assignment[member_id].append(partition)
        if len(assignment[member_id]) < share:
            below.append(member_id)
        elif len(assignment[member_id]) == share:
            candidates.append(member_id)
    return assignment


def _divide_by_wants(
    partitions: list[TopicPartition], owned: dict[str, list[TopicPartition]], wants: dict[str, frozenset[str]]
) -> dict[str, list[TopicPartition]]:
    readers = {topic: [member_id for member_id in owned if topic in wants[member_id]] for topic in {p.topic for p in partitions}}
    owner = {partition: member_id for member_id, mine in owned.items() for partition in mine}
    load = {member_id: len(mine) for member_id, mine in owned.items()}
    for partition in sorted(partitions, key=lambda p: (len(readers[p.topic]), p)):
        if partition not in owner:
            member_id = owner[partition] = min(readers[partition.topic], key=lambda m: (load[m], m))
            load[member_id] += 1
    _even_out(partitions, readers, owner, load)
    assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in owned}
    for partition in partitions:
        assignment[owner[partition]].append(partition)
    return assignment


def _even_out(
    partitions: list[TopicPartition], readers: dict[str, list[str]], owner: dict[TopicPartition, str], load: dict[str, int]
) -> None:
    """Moves partitions until the loads are even. Each move reduces the sum of the squared loads, so this ends."""
    is_moving = True
    while is_moving:
        is_moving = False
        for partition in partitions:
            old, new = owner[partition], min(readers[partition.topic], key=lambda m: (load[m], m))
            if load[old] > load[new] + 1:
                owner[partition] = new
                load[old] -= 1
                load[new] += 1
                is_moving = True
