"""What must hold of a controller's decisions, one committed step of the metadata after the other, whatever led to them.

Each function returns what is wrong, one line a finding. Source: KIP-631, KIP-704, KIP-841, KIP-966.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage
from ottla.types import NO_LEADER

UNCLEAN = "unclean.leader.election.enable"


def unsound(before: ClusterImage, after: ClusterImage) -> list[str]:
    """Returns what is unsound when ``after`` follows ``before`` in the metadata log."""
    found = [*_of_the_log(before, after), *_of_brokers(before, after)]
    for name, topic in after.topics.items():
        old = before.topics.get(name)
        if old is topic and after.brokers is before.brokers:
            continue
        is_known = old is not None and old.topic_id == topic.topic_id
        may_lose = "true" in (after.topic_configs(name).get(UNCLEAN), after.broker_configs("").get(UNCLEAN))
        for index, partition in topic.partitions.items():
            found += (f"{name}-{index}: {problem} ({partition})" for problem in _of_a_state(after, partition))
            earlier = old.partitions.get(index) if is_known and old is not None else None
            if earlier is not None and earlier is not partition:
                problems = _of_a_change(after, earlier, partition, may_lose=may_lose)
                found += (f"{name}-{index}: {problem} ({earlier} -> {partition})" for problem in problems)
    return [f"at {after.end_offset}: {problem}" for problem in found]


def _of_the_log(before: ClusterImage, after: ClusterImage) -> Iterator[str]:
    if after.epoch < before.epoch:
        yield f"the controller epoch goes back from {before.epoch} to {after.epoch}"
    if after.next_producer_id < before.next_producer_id:
        yield f"producer ids are given again from {after.next_producer_id} on"


def _of_brokers(before: ClusterImage, after: ClusterImage) -> Iterator[str]:
    if after.brokers is before.brokers:
        return
    epochs = [broker.broker_epoch for broker in after.brokers.values()]
    if len(set(epochs)) < len(epochs):
        yield f"two brokers have one epoch: {epochs}"
    for broker_id, broker in after.brokers.items():
        old = before.brokers.get(broker_id)
        if old is None or old == broker:
            continue
        if broker.incarnation_id != old.incarnation_id and broker.broker_epoch <= old.broker_epoch:
            yield f"another process of broker {broker_id} has no newer epoch"
        if broker.broker_epoch < old.broker_epoch:
            yield f"the epoch of broker {broker_id} goes back"


def _of_a_state(image: ClusterImage, partition: PartitionImage) -> Iterator[str]:
    unavailable = {node for node in partition.replicas if not _is_available(image.brokers.get(node))}
    if partition.leader in unavailable:
        yield f"broker {partition.leader} leads, and is fenced"
    if unavailable & set(partition.isr) and not (len(partition.isr) == 1 and partition.leader == NO_LEADER):
        yield f"{sorted(unavailable & set(partition.isr))} are in the ISR, and fenced"
    if not partition.isr and not partition.elr and not partition.last_known_elr:
        yield "no broker can ever lead"


def _is_available(broker: BrokerImage | None) -> bool:
    return broker is not None and not broker.is_fenced


def _of_a_change(image: ClusterImage, before: PartitionImage, after: PartitionImage, *, may_lose: bool) -> Iterator[str]:
    if after == replace(before, elr=(), last_known_elr=()):  # ClearElrRecord: of many partitions at once, without an epoch
        return
    if after.partition_epoch <= before.partition_epoch:
        yield "it has changed without a new partition epoch"
    if after.leader_epoch < before.leader_epoch:
        yield "the leader epoch goes back"
    if after.leader != before.leader:
        if after.leader_epoch == before.leader_epoch:
            yield "another leader in the same epoch"
        if after.leader != NO_LEADER:
            yield from _of_a_leader(image, before, after, may_lose=may_lose)
    is_left = after.leader == NO_LEADER and len(after.isr) == 1  # one step may be two decisions: it was elected, and is gone
    for node in set() if is_left else set(after.isr) - set(before.isr) - {after.leader}:
        broker = image.brokers.get(node)
        if not _is_available(broker) or (broker is not None and broker.in_controlled_shutdown):
            yield f"broker {node} joins the ISR, and is fenced or stops"
    gone = set(before.replicas) - set(after.replicas)
    if gone:
        yield from _of_a_move(before, after, gone)


def _of_a_leader(image: ClusterImage, before: PartitionImage, after: PartitionImage, *, may_lose: bool) -> Iterator[str]:
    leader = image.brokers.get(after.leader)
    if leader is not None and leader.in_controlled_shutdown:
        yield f"broker {after.leader} is elected while it stops"
    # One step may be two decisions. The leader before has found it in sync, and then it was preferred; or the move that takes that
    # leader away was done, and another one is under way. A leader that was elected with a loss cannot have asked for another ISR yet.
    are_many = after.partition_epoch > before.partition_epoch + 1
    has_joined = are_many and before.leader in after.isr
    has_handed_over = before.leader in set(before.replicas) - set(after.replicas)  # to one that it found in sync
    has_handed_over |= are_many and before.leader in before.removing and before.leader in after.adding
    if after.leader not in {*before.isr, *before.elr} and not has_handed_over and not has_joined:
        # The last one of an ISR has lost power: with eligible leader replicas it leads again, for want of another one (KIP-966).
        is_last_known = not before.isr and not before.elr and before.last_known_elr == (after.leader,)
        if not may_lose and not is_last_known:
            yield f"broker {after.leader} was neither in sync nor eligible"
        if not after.is_recovering:
            yield f"broker {after.leader} may lack records, and counts as one that has them all"


def _of_a_move(before: PartitionImage, after: PartitionImage, gone: Set[int]) -> Iterator[str]:
    if after.leader_epoch == before.leader_epoch:
        yield f"{sorted(gone)} are no replicas any more, in the same epoch"
    is_complete = bool(gone & set(before.removing)) and not after.removing
    if is_complete and not set(before.adding) <= set(before.isr) | set(after.isr):
        yield f"{sorted(gone)} go before {before.adding} are in sync"
