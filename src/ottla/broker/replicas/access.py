"""Which partition a request may use: whether this broker has it, and leads it, is asked here.

The order of the answers is Kafka's: KAFKA_STORAGE_ERROR for a replica of this broker that is offline; NOT_LEADER_OR_FOLLOWER for a
partition that the cluster has and this broker has not; UNKNOWN_TOPIC_OR_PARTITION for one that the cluster does not have. Then the leader
epoch that the client knows, then whether this broker leads (``Partition.check_leads``).
"""

from __future__ import annotations

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage
from ottla.types import NO_EPOCH, TopicPartition


def led(store: PartitionStore, image: ClusterImage, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> Partition:
    """Returns the partition, which this broker leads, in that epoch if the client knows one; KafkaError otherwise."""
    partition = hosted(store, image, topic, index)
    partition.check_leads(leader_epoch)
    return partition


def hosted(store: PartitionStore, image: ClusterImage, topic: str, index: int) -> Partition:
    """Returns the partition, led here or not; KafkaError when this broker has no replica that is open."""
    partition = store.find(topic, index)
    if partition is None:
        raise absent(store, image, topic, index)
    return partition


def why_offline(store: PartitionStore, topic: str, index: int) -> str:
    """Returns why this broker's replica is offline, for those who may see names of files; empty where nothing is known."""
    partition = store.find(topic, index)
    if partition is None:
        return store.unopened.reasons.get(TopicPartition(topic, index), "") if store.is_offline(topic, index) else ""
    return partition.log.health.reason


def absent(
    store: PartitionStore, image: ClusterImage, topic: str, index: int, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
) -> KafkaError:
    """Returns why the partition is not among those open here; ``code`` when the cluster does not have it."""
    if TopicPartition(topic, index) in store.offline:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline: it could not be opened")
    if (known := image.topics.get(topic)) is not None and index in known.partitions:
        is_own = store.replication.node_id in known.partitions[index].replicas
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is {'not open yet' if is_own else 'on other brokers'}")
    return KafkaError(code)
