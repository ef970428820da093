"""The next step of one member towards its target: first it gives up what it may not keep, then it takes what others have released.

::

    STABLE -- target changed --> UNREVOKED_PARTITIONS   it still owns what it must give up; it stays in its epoch
       |                              | its heartbeat no longer lists any of that
       |   nothing to give up         v
       +------------------------> UNRELEASED_PARTITIONS  in the target's epoch; some of its target is still another member's
                                      | released
                                      v
                                   STABLE

A member that has nothing to wait for goes to STABLE at once. Owned partitions that a heartbeat leaves out (null) are unchanged: that
never counts as given up. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from ottla.groups.consumer.member import ConsumerMember, MemberState, Owned, Partitions

IsFree = Callable[[bytes, int], bool]
"""Whether no member has the partition, nor has to give it up."""


def next_step(
    member: ConsumerMember,
    target: Partitions,
    target_epoch: int,
    *,
    owned: Partitions | None,
    is_free: IsFree,
    subscribed: Collection[bytes],
) -> ConsumerMember:
    """Returns the member's next state; the same one when nothing changes.

    ``owned`` is what its heartbeat says that it has; None when it says nothing. Of topics that are not ``subscribed`` nothing is kept, even
    where the target is older than the subscription.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch and all(topic in subscribed for topic in member.assigned):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _has_any(owned, member.revoking):
        return _withdrawn(member, owned, subscribed)
    wanted = {topic: indexes for topic, indexes in target.items() if topic in subscribed}
    kept, revoking = _split(member.assigned, wanted)
    if revoking and _has_any(owned, revoking):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoking)
    taken, is_waiting = _available(member, wanted, kept, target_epoch, is_free)
    return _moved(member, MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE, target_epoch, taken, {})


def _split(assigned: Owned, wanted: Partitions) -> tuple[dict[bytes, dict[int, int]], dict[bytes, dict[int, int]]]:
    """Returns what the member keeps, and what it has to give up."""
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    for topic, indexes in assigned.items():
        target = wanted.get(topic, frozenset())
        for index, epoch in indexes.items():
            (kept if index in target else revoking).setdefault(topic, {})[index] = epoch
    return kept, revoking


def _available(
    member: ConsumerMember, wanted: Partitions, kept: Mapping[bytes, dict[int, int]], target_epoch: int, is_free: IsFree
) -> tuple[dict[bytes, dict[int, int]], bool]:
    """Returns what it keeps, with what it may take besides; and whether some of its target is still another member's.

    What it had to give up itself, and is its target again, is its own to take.
    """
    taken = {topic: dict(indexes) for topic, indexes in kept.items()}
    is_waiting = False
    for topic, indexes in wanted.items():
        for index in sorted(indexes - kept.get(topic, {}).keys()):
            if is_free(topic, index) or index in member.revoking.get(topic, {}):
                taken.setdefault(topic, {})[index] = target_epoch
            else:
                is_waiting = True
    return taken, is_waiting


def _withdrawn(member: ConsumerMember, owned: Partitions | None, subscribed: Collection[bytes]) -> ConsumerMember:
    """Returns the member, which is still giving up what it had to; now also what it no longer subscribes to."""
    lost = {topic: indexes for topic, indexes in member.assigned.items() if topic not in subscribed}
    if not lost:
        return member
    revoking = {topic: dict(indexes) for topic, indexes in member.revoking.items()}
    for topic, indexes in lost.items():
        revoking.setdefault(topic, {}).update(indexes)
    kept = {topic: indexes for topic, indexes in member.assigned.items() if topic not in lost}
    return _moved(member, member.state, member.epoch, kept, revoking)


def _has_any(owned: Partitions | None, revoking: Owned) -> bool:
    return owned is None or any(index in owned.get(topic, ()) for topic, indexes in revoking.items() for index in indexes)


def _moved(member: ConsumerMember, state: MemberState, epoch: int, assigned: Owned, revoking: Owned) -> ConsumerMember:
    """Returns the member moved. A new epoch makes the old one its previous one: the answer may be lost, and the member return with that."""
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return msgspec.structs.replace(member, state=state, epoch=epoch, previous_epoch=previous, assigned=assigned, revoking=revoking)
