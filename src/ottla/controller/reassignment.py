"""Where replicas are: what AlterPartitionReassignments decides over an image.

A new order of the same replicas is recorded at once: it says who is preferred as the leader. A move to other brokers is a thing of
clusters; while there is one broker, there is no other to move to, and nothing that could be under way. Source: KIP-455.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.decided import Recorded
from ottla.controller.topics import check_replicas, find_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import ClusterImage


def reassign(image: ClusterImage, topic: str, index: int, replicas: Sequence[int] | None, *, keeps_factor: bool) -> Recorded:
    """The partition has these replicas; None cancels what is under way. KafkaError with the code that Kafka gives."""
    found, partition = find_partition(image, topic, index)
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"the replicas of {topic}-{index} are not being moved")
    check_replicas(image, topic, index, replicas, factor=len(replicas))
    if keeps_factor and len(replicas) != len(partition.replicas):
        text = f"{topic}-{index} has {len(partition.replicas)} replicas, and the request keeps that; it names {len(replicas)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if tuple(replicas) == partition.replicas:
        return Recorded(())
    if set(replicas) != set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{topic}-{index} cannot be moved: replication is not supported yet")
    return Recorded((PartitionChangeRecord(index, found.topic_id, replicas=list(replicas)),))
