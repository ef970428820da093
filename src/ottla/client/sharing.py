"""What members of a consumer group tell each other through the coordinator, which does not look at it.

A subscription goes up with JoinGroup, an assignment comes down with SyncGroup; each is a 2-byte version and a message of
``consumer_protocol``. Source: KIP-429, Kafka's ConsumerProtocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.groups.assignors import ASSIGNORS, COOPERATIVE, Subscription, assign
from ottla.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ottla.messages.consumer_protocol import TopicPartition as OwnedPartitions
from ottla.types import TopicPartition
from ottla.wire.compiler import decode_from, encode

__all__ = ["ASSIGNORS", "COOPERATIVE", "Subscription"]

SUBSCRIPTION_VERSION: Final = 2
"""Owned partitions and generation; version 3 adds a rack, which no strategy here looks at."""
ASSIGNMENT_VERSION: Final = 1
_VERSION_MAX: Final = 3


def encode_subscription(topics: Iterable[str], owned: Iterable[TopicPartition], generation_id: int) -> bytes:
    grouped = [OwnedPartitions(topic, indexes) for topic, indexes in sorted(by_topic(owned).items())]
    message = ConsumerProtocolSubscription(sorted(topics), None, grouped, generation_id)
    return struct.pack(">h", SUBSCRIPTION_VERSION) + encode(message, SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes, group_instance_id: str | None) -> Subscription:
    """What another member, of whatever make, subscribes to."""
    message, _ = decode_from(ConsumerProtocolSubscription, _version(data), data, 2)
    owned = [TopicPartition(item.topic, index) for item in message.owned_partitions for index in item.partitions]
    return Subscription(tuple(message.topics), tuple(owned), message.generation_id, group_instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    grouped = [ConsumerProtocolAssignmentTopicPartition(topic, indexes) for topic, indexes in sorted(by_topic(partitions).items())]
    return struct.pack(">h", ASSIGNMENT_VERSION) + encode(ConsumerProtocolAssignment(grouped), ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions; none when the leader gave this member nothing at all."""
    if not data:
        return []
    message, _ = decode_from(ConsumerProtocolAssignment, _version(data), data, 2)
    return [TopicPartition(item.topic, index) for item in message.assigned_partitions for index in item.partitions]


def divide(
    protocol: str, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Each member's share. INCONSISTENT_GROUP_PROTOCOL for a strategy that this client does not have."""
    if protocol not in ASSIGNORS:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"strategy {protocol!r} is not one of {', '.join(ASSIGNORS)}")
    return assign(protocol, subscriptions, partition_counts)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        grouped.setdefault(partition.topic, []).append(partition.partition)
    return grouped


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError("consumer protocol data of less than two bytes")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise DecodeError(f"consumer protocol version {version}")
    return min(version, _VERSION_MAX)  # newer ones only add to the end
