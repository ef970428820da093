"""Who leads: what ElectLeaders decides over an image.

A preferred election gives a partition back to the first of its replicas. An unclean one is for a partition without a leader: any
replica that is up may take it, and what only the others had is lost. Source: KIP-183, KIP-460.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ottla.controller.topics import find_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import ClusterImage
from ottla.types import NO_LEADER


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Election:
    """The record that makes a partition's leader."""

    records: tuple[PartitionChangeRecord]


def elect_leader(image: ClusterImage, topic: str, index: int, kind: ElectionType) -> Election:
    """The election, or a KafkaError: ELECTION_NOT_NEEDED where the leader is who it should be."""
    found, partition = find_partition(image, topic, index)
    live = {broker.broker_id for broker in image.live_brokers}
    if kind is ElectionType.PREFERRED:
        leader = partition.replicas[0]
        if partition.leader == leader:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads {topic}-{index} already")
        if leader not in live or leader not in partition.isr:
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {leader} is not up and in sync for {topic}-{index}")
        return Election((PartitionChangeRecord(index, found.topic_id, leader=leader),))
    if partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{topic}-{index} has a leader, broker {partition.leader}")
    candidates = [node for node in partition.isr if node in live] or [node for node in partition.replicas if node in live]
    if not candidates:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {topic}-{index} is up")
    leader = candidates[0]
    isr = list(partition.isr) if leader in partition.isr else [leader]
    return Election((PartitionChangeRecord(index, found.topic_id, isr=isr, leader=leader),))
