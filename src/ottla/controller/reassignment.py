"""Where replicas are: what AlterPartitionReassignments decides over an image, and which moves are under way.

While a partition moves, its replicas are those that it shall have, in their order, and behind them those that it loses. A replica that is
added joins the ISR as any follower does; the change of the ISR that makes it complete takes out who is removed (``partition_change.py``).
A move that needs no new replica, as a new order of the same replicas, is complete at once. Source: KIP-455, KIP-860.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.decided import Recorded
from ottla.controller.partition_change import Target, change
from ottla.controller.topic_rules import TopicRules
from ottla.controller.topics import check_replicas, find_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage, PartitionImage


def reassign(
    image: ClusterImage, topic: str, index: int, replicas: Sequence[int] | None, *, keeps_factor: bool, rules: TopicRules | None = None
) -> Recorded:
    """Moves the partition to these replicas; None cancels what is under way. KafkaError with the code that Kafka gives."""
    found, partition = find_partition(image, topic, index)
    known = rules or TopicRules(image)
    if replicas is None:
        target = _reverted(topic, index, partition, may_be_unclean=known.may_be_unclean(topic))
    else:
        check_replicas(image, topic, index, replicas, factor=len(replicas))
        count = len(_original(partition))
        if keeps_factor and len(replicas) != count:
            text = f"{topic}-{index} has {count} replicas, and the request keeps that; it names {len(replicas)}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        target = _moved(partition, replicas)
    record = change(found.topic_id, index, partition, target, known.of(topic, partition))
    if record is not None and not set(target.isr) <= set(partition.isr):  # it was cancelled at the price of records
        record.leader_recovery_state = 1
    return Recorded(() if record is None else (record,))


def is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def _original(partition: PartitionImage) -> list[int]:
    return [node for node in partition.replicas if node not in partition.adding]


def _moved(partition: PartitionImage, wanted: Sequence[int]) -> Target:
    """Returns the target of a move. One that replaces another goes on from there: unwanted replicas that were being added are removed."""
    removing = sorted(node for node in partition.replicas if node not in wanted)
    adding = sorted(node for node in wanted if node not in partition.replicas or node in partition.adding)
    return Target((*wanted, *removing), partition.isr, None, adding, removing)


def _reverted(topic: str, index: int, partition: PartitionImage, *, may_be_unclean: bool) -> Target:
    if not is_moving(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"the replicas of {topic}-{index} are not being moved")
    replicas = _original(partition)
    isr = [node for node in partition.isr if node in replicas]
    if partition.isr and not isr and not any(node in replicas for node in partition.elr):
        if not may_be_unclean:
            text = f"only replicas that are being added are in sync for {topic}-{index}: without them records would be lost"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        isr = replicas[:1]
    return Target(replicas, isr)
