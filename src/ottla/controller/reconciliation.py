"""What a controller decides about what it finds: brokers that came and went while nobody looked, partitions that are only half made.

A controller whose records are kept in ZooKeeper reads there who is registered, and what every partition was when somebody wrote it last.
Whoever is not registered, or by a later session than the one that was known, has left every ISR first. Source: KIP-631, KIP-841.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ottla.controller.brokers import leaving
from ottla.controller.decided import Recorded
from ottla.controller.partition_change import with_leader, without_replicas
from ottla.controller.topic_rules import TopicRules, is_serving, partitions_of
from ottla.messages.metadata_records import PartitionRecord
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.members import broker_record
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored


def without_the_absent(image: ClusterImage, *, rules: TopicRules, suspected: Container[int] = ()) -> Recorded:
    """Who is not registered is in no ISR and leads nothing, and what has no leader has one, where somebody can lead."""
    records: list[Stored] = []
    for name, topic_id, index, partition in partitions_of(image):
        absent = {node for node in partition.isr if node not in image.brokers}
        known = rules.of(name, partition, suspected)
        if absent:
            record = without_replicas(topic_id, index, partition, absent, known)
        else:
            record = with_leader(topic_id, index, partition, known)
        if record is not None:
            records.append(record)
    return Recorded(tuple(records))


def broker_came(image: ClusterImage, broker: BrokerImage, *, rules: TopicRules, suspected: Container[int] = ()) -> Recorded:
    """The broker is registered, fenced, under the epoch that it has; whoever had its id before has left."""
    records: list[Stored] = []
    if broker.broker_id in image.brokers:
        records += leaving(image, broker.broker_id, rules, is_clean=False, suspected=suspected)
    return Recorded((*records, broker_record(broker)))


def born(image: ClusterImage, partitions: Iterable[tuple[str, int, Sequence[int]]]) -> Recorded:
    """Partitions of topics that exist: replicas that serve are in sync; where none does, the first one is, and nobody leads."""
    records: list[Stored] = []
    for name, index, replicas in partitions:
        topic = image.topics.get(name)
        if topic is None or index in topic.partitions or not replicas:
            continue
        serving = [node for node in replicas if is_serving(image, node)]
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=list(replicas),
                isr=serving or [replicas[0]],
                leader=serving[0] if serving else NO_LEADER,
                leader_epoch=0,
                partition_epoch=0,
            )
        )
    return Recorded(tuple(records))
