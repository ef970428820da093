"""In which log directory of its broker a replica is, and what follows when that has failed: others lead what was there.

A replica that has lost its directory gets the directory id that Kafka calls LOST. Source: KIP-858.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from msgspec import Struct

from ottla.controller.partition_change import UNASSIGNED, with_leader, without_replicas
from ottla.controller.sweeps import RulesOf, Sweep, WithoutDirectories
from ottla.controller.topic_rules import LOST, TopicRules, has_directory, hosted_by, is_lost
from ottla.errors import ErrorCode
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage
from ottla.metadata.record_versions import DIRECTORIES, METADATA_VERSION, NEWEST
from ottla.types import NO_LEADER

ReplicaKey = tuple[bytes, int]
"""A topic's id and a partition's index."""


class Assigned(Struct, frozen=True):
    """The records, and the code of each replica that could not be assigned."""

    records: tuple[PartitionChangeRecord, ...]
    refused: Mapping[ReplicaKey, ErrorCode]


def assign_directories(image: ClusterImage, broker_id: int, wanted: Mapping[ReplicaKey, bytes], *, rules: TopicRules) -> Assigned:
    """Assigns the broker's replicas to these directories.

    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER where the broker has no replica.
    """
    records, refused = [], {}
    if image.features.get(METADATA_VERSION, NEWEST) < DIRECTORIES:  # the log cannot say it, and it is not asked for again
        return Assigned((), {})
    for (topic_id, index), directory in wanted.items():
        name = image.topic_names.get(topic_id)
        partition = None if name is None else image.topics[name].partitions.get(index)
        if name is None or partition is None:
            refused[topic_id, index] = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker_id not in partition.replicas:
            refused[topic_id, index] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            record = _assigned(image, name, topic_id, index, partition, broker_id, directory, rules)
            if record is not None:
                records.append(record)
    return Assigned(tuple(records), refused)


def _assigned(
    image: ClusterImage,
    topic: str,
    topic_id: bytes,
    index: int,
    partition: PartitionImage,
    broker_id: int,
    directory: bytes,
    rules: TopicRules,
) -> PartitionChangeRecord | None:
    known = list(partition.directories) or [UNASSIGNED] * len(partition.replicas)
    place = partition.replicas.index(broker_id)
    if known[place] == directory:
        return None
    known[place] = directory
    there = replace(partition, directories=tuple(known))
    record, own = None, rules.of(topic, there)
    if not has_directory(image, there, broker_id):
        record = without_replicas(topic_id, index, there, {broker_id}, own)
    elif there.leader == NO_LEADER:
        record = with_leader(topic_id, index, there, own)
    record = record or PartitionChangeRecord(index, topic_id)
    if record.directories is None:
        record.directories = known
    return record


def lost_replicas(image: ClusterImage, broker_id: int, lost: Mapping[ReplicaKey, bool], *, rules: TopicRules) -> Assigned:
    """Marks the broker's replicas as lost, or, if they were, as back. For a controller that knows nothing else of log directories."""
    changed: dict[ReplicaKey, bytes] = {}
    for _, topic_id, index, partition in hosted_by(image, broker_id):
        is_now = lost.get((topic_id, index))
        if is_now is not None and is_now != is_lost(partition, broker_id):
            changed[topic_id, index] = LOST if is_now else UNASSIGNED
    return assign_directories(image, broker_id, changed, rules=rules)


def failing_directories(image: ClusterImage, broker: BrokerImage, failed: Collection[bytes], rules: RulesOf) -> Sweep | None:
    """Returns the sweep by which the broker goes on without these directories; None when it does already."""
    left = [directory for directory in broker.directories if directory not in failed]
    if len(left) == len(broker.directories) or not left:  # a broker without any is about to end
        return None

    def is_wanted(image: ClusterImage) -> bool:
        known = image.brokers.get(broker.broker_id)
        return known is not None and known.broker_epoch == broker.broker_epoch

    return WithoutDirectories(broker, frozenset(failed), rules, is_wanted)
