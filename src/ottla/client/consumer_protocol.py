"""What members of a consumer group send each other through the coordinator, which does not look at it.

JoinGroup carries a subscription to the broker, SyncGroup returns an assignment; each is a 2-byte version and a message of
``consumer_protocol``. What a member still owns is a field of the subscription; under the eager ``sticky`` strategy, whose
members own nothing while they join, what they had is listed in the strategy's user data. Source: KIP-54, KIP-429, Kafka's
ConsumerProtocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.client.assignors import ASSIGNORS, Subscription, assign
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    StickyUserData,
)
from ottla.messages.consumer_protocol import TopicPartition as OwnedPartitions
from ottla.types import TopicPartition
from ottla.wire.compiler import decode_from, encode

SUBSCRIPTION_VERSION: Final = 2
"""Owned partitions and generation; version 3 adds a rack, which no strategy here looks at."""
ASSIGNMENT_VERSION: Final = 1
STICKY: Final = "sticky"
_VERSION_MAX: Final = 3


class Share(NamedTuple):
    """The partitions of one member, and the generation in which it had them; -1 when it had none."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


def encode_subscription(protocol: str, topics: Iterable[str], owned: Share, previous: Share) -> bytes:
    """Encodes a subscription: ``owned`` is what the member keeps while it joins, ``previous`` what it had after its last round."""
    user_data = None
    if protocol == STICKY and previous.generation_id >= 0:
        user_data = encode(StickyUserData(_grouped(previous.partitions), previous.generation_id), 1)
    message = ConsumerProtocolSubscription(sorted(topics), user_data, _grouped(owned.partitions), owned.generation_id)
    return struct.pack(">h", SUBSCRIPTION_VERSION) + encode(message, SUBSCRIPTION_VERSION)


def decode_subscription(protocol: str, data: bytes, group_instance_id: str | None) -> Subscription:
    """Returns the subscription of another member, which may be of any make."""
    message, _ = decode_from(ConsumerProtocolSubscription, _version(data), data, 2)
    share = Share(_flat(message.owned_partitions), message.generation_id)
    if protocol == STICKY and message.user_data:
        share = _previous(message.user_data)
    return Subscription(tuple(message.topics), *share, group_instance_id)


def _previous(user_data: bytes) -> Share:
    """Returns the share of a sticky member. Unreadable data count as none, as with Kafka: the members come to a balance all the same."""
    # Java's client writes no version in front, so both are tried; kafka-python 3 writes one.
    for version, start in ((1, 0), (0, 0), (1, 2)):
        try:
            message, end = decode_from(StickyUserData, version, user_data, start)
        except DecodeError:
            continue
        if end == len(user_data):
            return Share(_flat(message.previous_assignment), message.generation)
    return Share()


def _grouped(partitions: Iterable[TopicPartition]) -> list[OwnedPartitions]:
    return [OwnedPartitions(topic, indexes) for topic, indexes in sorted(by_topic(partitions).items())]


def _flat(grouped: Iterable[OwnedPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(item.topic, index) for item in grouped for index in item.partitions)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    grouped = [ConsumerProtocolAssignmentTopicPartition(topic, indexes) for topic, indexes in sorted(by_topic(partitions).items())]
    return struct.pack(">h", ASSIGNMENT_VERSION) + encode(ConsumerProtocolAssignment(grouped), ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Returns the partitions; none when the leader gave this member nothing at all."""
    if not data:
        return []
    message, _ = decode_from(ConsumerProtocolAssignment, _version(data), data, 2)
    return [TopicPartition(item.topic, index) for item in message.assigned_partitions for index in item.partitions]


def divide(
    protocol: str, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Returns each member's share. INCONSISTENT_GROUP_PROTOCOL for a strategy that this client does not have."""
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
