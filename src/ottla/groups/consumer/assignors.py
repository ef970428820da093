"""Assignors on the coordinator's side: who is to read which partitions. Pure functions of the members and topics.

``uniform`` spreads the partitions evenly over the members that subscribe to them, and keeps what members have where balance allows.
``range`` gives each member a run of each topic: the same run of all topics, for joins, where all members subscribe to the same topics and
those are of one size. Both are deterministic: the same members, topics and target give the same result. Source: KIP-848.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ottla.groups.consumer.member import Partitions

UNIFORM: Final = "uniform"
RANGE: Final = "range"


class Subscriber(msgspec.Struct, frozen=True):
    """``topics`` are ids of topics that exist; ``target`` is what it had before, ``instance_id`` a static member's."""

    topics: frozenset[bytes]
    target: Partitions = {}
    instance_id: str | None = None


Members = Mapping[str, Subscriber]
Counts = Mapping[bytes, int]
"""Topic id to partition count."""
_Given = dict[str, dict[bytes, set[int]]]


def uniform(members: Members, counts: Counts) -> dict[str, Partitions]:
    """Assigns evenly: of two members that could read one partition, its reader has at most one partition more than the other."""
    order = sorted(members)
    given: _Given = {member_id: {} for member_id in order}
    wanted = set[frozenset[bytes]](member.topics for member in members.values())
    free = {topic: set(range(counts[topic])) for topics in wanted for topic in topics}
    for member_id in order:
        for topic, indexes in members[member_id].target.items():
            if topic in members[member_id].topics and (kept := indexes & free[topic]):
                free[topic] -= kept
                given[member_id][topic] = set(kept)
    loads = [sum(map(len, given[member_id].values())) for member_id in order]
    if len(wanted) == 1:
        _share_out(free, order, given, loads)
    else:
        _spread(free, members, order, given, loads)
    return _frozen(given)


def _share_out(free: dict[bytes, set[int]], order: list[str], given: _Given, loads: list[int]) -> None:
    """Shares out among members that all subscribe to the same topics: the larger shares go to the members that have most."""
    share, more = divmod(sum(loads) + sum(map(len, free.values())), len(order))
    lacking = []
    for place in sorted(range(len(order)), key=lambda place: (-loads[place], place)):
        size = share + (more > 0)
        more -= more > 0
        topics = given[order[place]]
        for topic in sorted(topics, reverse=True):
            if loads[place] <= size:
                break
            given_up = sorted(topics[topic])[max(0, len(topics[topic]) - (loads[place] - size)) :]
            topics[topic].difference_update(given_up)
            free[topic].update(given_up)
            loads[place] -= len(given_up)
        if loads[place] < size:
            lacking.append((place, size - loads[place]))
    lacking.sort()
    rounds = max((count for _, count in lacking), default=0)
    takers = (order[place] for number in range(rounds) for place, count in lacking if number < count)
    for topic in sorted(free):
        for index in sorted(free[topic]):
            given[next(takers)].setdefault(topic, set()).add(index)


def _spread(free: dict[bytes, set[int]], members: Members, order: list[str], given: _Given, loads: list[int]) -> None:
    """Assigns to members with different subscriptions, which are known by their places in the order."""
    subscribers: dict[bytes, list[int]] = {topic: [] for topic in free}
    for place, member_id in enumerate(order):
        for topic in members[member_id].topics:
            subscribers[topic].append(place)
    parts = [given[member_id] for member_id in order]
    topics = sorted(free, key=lambda topic: (len(subscribers[topic]), topic))  # topics that few members can read come first
    for topic in topics:
        _hand_out(topic, sorted(free[topic]), subscribers[topic], parts, loads)
    has_moved = True
    while has_moved:  # each move lowers the sum of the squares of the loads: it ends
        has_moved = False
        for topic in topics:
            has_moved |= _even_out(topic, subscribers[topic], parts, loads)


def _hand_out(topic: bytes, indexes: list[int], subscribers: list[int], parts: list[dict[bytes, set[int]]], loads: list[int]) -> None:
    """Gives each partition to the subscriber that has the fewest. A heap's entry is a load and a place in one number."""
    size = len(parts)
    heap = [loads[place] * size + place for place in subscribers]
    heapq.heapify(heap)
    for index in indexes:
        place = heap[0] % size
        parts[place].setdefault(topic, set()).add(index)
        loads[place] += 1
        heapq.heapreplace(heap, heap[0] + size)


def _even_out(topic: bytes, subscribers: list[int], parts: list[dict[bytes, set[int]]], loads: list[int]) -> bool:
    """Moves partitions of the topic from the member with the most to the one with the fewest, while that helps. True when one moved."""
    givers = [place for place in subscribers if parts[place].get(topic)]
    if not givers or max(loads[place] for place in givers) - min(loads[place] for place in subscribers) < 2:
        return False
    least = [(loads[place], place) for place in subscribers]
    most = [(-loads[place], place) for place in givers]
    heapq.heapify(least)
    heapq.heapify(most)
    has_moved = False
    while most and least:
        high, giver = most[0]
        low, taker = least[0]
        if -high != loads[giver] or low != loads[taker]:  # an entry from before a move
            heap, entry = (most, (-loads[giver], giver)) if -high != loads[giver] else (least, (loads[taker], taker))
            heapq.heapreplace(heap, entry)
            continue
        if loads[giver] - loads[taker] < 2:
            break
        index = max(parts[giver][topic])
        parts[giver][topic].discard(index)
        parts[taker].setdefault(topic, set()).add(index)
        loads[giver] -= 1
        loads[taker] += 1
        has_moved = True
        if not parts[giver][topic]:
            heapq.heappop(most)
    return has_moved


def by_range(members: Members, counts: Counts) -> dict[str, Partitions]:
    """Gives each member a run of each topic that it subscribes to; what is left over goes to the first members, one each.

    Static members come first, in the order of their instance ids, so that a member that returns under another id gets the same run.
    """
    given: _Given = {member_id: {} for member_id in members}
    order = sorted(members, key=lambda member_id: _range_key(member_id, members[member_id]))
    for topic in {topic for member in members.values() for topic in member.topics}:
        subscribers = [member_id for member_id in order if topic in members[member_id].topics]
        size, more = divmod(counts[topic], len(subscribers))
        start = 0
        for at, member_id in enumerate(subscribers):
            end = start + size + (at < more)
            given[member_id][topic] = set(range(start, end))
            start = end
    return _frozen(given)


def _range_key(member_id: str, member: Subscriber) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member_id


def _frozen(given: _Given) -> dict[str, Partitions]:
    return {member_id: {topic: frozenset(indexes) for topic, indexes in topics.items() if indexes} for member_id, topics in given.items()}


ASSIGNORS: Final[Mapping[str, Callable[[Members, Counts], dict[str, Partitions]]]] = {UNIFORM: uniform, RANGE: by_range}
"""By the name that members and ``group.consumer.assignors`` give them."""
