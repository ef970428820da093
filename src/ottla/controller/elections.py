"""Who leads: elections that are asked for, and those that follow from what a broker can serve.

A preferred election gives a partition back to the first of its replicas. An unclean one is for a partition without a leader: any
replica that is up may take it, and what only the others had is lost. A replica whose disk has failed is not up, whatever its
broker is. Source: KIP-183, KIP-460, KIP-112; eligible leader replicas: KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import IntEnum

from ottla.controller.decided import Recorded
from ottla.controller.features import ELR_VERSION
from ottla.controller.topics import find_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.types import NO_LEADER


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leader(image: ClusterImage, topic: str, index: int, kind: ElectionType, *, offline: Collection[int] = ()) -> Recorded:
    """The election, or a KafkaError: ELECTION_NOT_NEEDED where the leader is who it should be. ``offline`` replicas are not up."""
    found, partition = find_partition(image, topic, index)
    up = [broker.broker_id for broker in image.live_brokers if broker.broker_id not in offline]
    if kind is ElectionType.PREFERRED:
        leader = partition.replicas[0]
        if partition.leader == leader:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads {topic}-{index} already")
        if leader not in up or leader not in partition.isr:
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {leader} is not up and in sync for {topic}-{index}")
        return Recorded((_led_by(leader, found.topic_id, index, partition),))
    if partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{topic}-{index} has a leader, broker {partition.leader}")
    candidates = [node for node in (*partition.isr, *partition.elr, *partition.replicas) if node in up]
    if not candidates:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {topic}-{index} is up")
    return Recorded((_led_by(candidates[0], found.topic_id, index, partition),))


def follow_replicas(image: ClusterImage, node: int, is_offline: Callable[[str, int], bool]) -> Recorded:
    """A broker gives up the partitions that it leads and cannot serve, and takes those without a leader whose data it has and can serve.

    No other broker can lead them: there is one broker. A leader that resigns stays in the ISR as its last member, or becomes eligible
    where the cluster keeps eligible leader replicas.
    """
    records = []
    for name, topic in sorted(image.topics.items()):
        for index, partition in sorted(topic.partitions.items()):
            if partition.leader == node and is_offline(name, index):
                record = PartitionChangeRecord(index, topic.topic_id, leader=NO_LEADER)
                if image.features.get(ELR_VERSION, 0) > 0:
                    record.isr = [other for other in partition.isr if other != node]
                    record.eligible_leader_replicas = [*partition.elr, node]
                records.append(record)
            elif partition.leader == NO_LEADER and node in (*partition.isr, *partition.elr) and not is_offline(name, index):
                records.append(_led_by(node, topic.topic_id, index, partition))
    return Recorded(tuple(records))


def _led_by(leader: int, topic_id: bytes, index: int, partition: PartitionImage) -> PartitionChangeRecord:
    """A replica that leads without having been in sync is then the only one in sync."""
    record = PartitionChangeRecord(index, topic_id, leader=leader)
    if leader not in partition.isr:
        record.isr = [leader]
    if leader in partition.elr:
        record.eligible_leader_replicas = [node for node in partition.elr if node != leader]
    return record
