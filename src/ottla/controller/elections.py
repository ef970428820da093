"""Who leads: elections that are asked for, and those that follow from what a broker can serve.

A preferred election gives a partition back to the first of its replicas. An unclean one is for a partition without a leader: any
replica that is up may take it, and what only the others had is lost. A replica whose disk has failed is not up, whatever its
broker is. Source: KIP-183, KIP-460, KIP-112; eligible leader replicas: KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from ottla.controller.decided import Recorded
from ottla.controller.features import ELR_VERSION
from ottla.controller.partition_change import with_leader, with_preferred_leader
from ottla.controller.topic_rules import TopicRules, may_lead
from ottla.controller.topics import find_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leader(
    image: ClusterImage, topic: str, index: int, kind: ElectionType, *, rules: TopicRules | None = None, offline: Collection[int] = ()
) -> Recorded:
    """Returns the election, or raises a KafkaError: ELECTION_NOT_NEEDED where the right replica leads already.

    ``offline`` are brokers whose replicas are not up, though the image does not say so.
    """
    found, partition = find_partition(image, topic, index)
    known = (rules or TopicRules(image)).of(topic, partition)

    def is_up(node: int) -> bool:
        return node not in offline and known.is_up(node)

    if kind is ElectionType.PREFERRED:
        leader = partition.replicas[0]
        if partition.leader == leader:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads {topic}-{index} already")
        record = with_preferred_leader(found.topic_id, index, partition, replace(known, is_up=is_up))
        if record is None:
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {leader} is not up and in sync for {topic}-{index}")
        return Recorded((record,))
    if partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{topic}-{index} has a leader, broker {partition.leader}")
    record = with_leader(found.topic_id, index, partition, replace(known, is_up=is_up, may_be_unclean=True))
    if record is None:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {topic}-{index} is up")
    return Recorded((record,))


def is_imbalanced(image: ClusterImage, partition: PartitionImage, suspected: Container[int] = ()) -> bool:
    """True when the first replica does not lead, and could: it is in sync, up, and not suspected to be dead."""
    preferred = partition.replicas[0]
    if partition.leader in (preferred, NO_LEADER) or preferred not in partition.isr or preferred in suspected:
        return False
    return may_lead(image, partition)(preferred)


def give_back(image: ClusterImage, topic: str, index: int, *, rules: TopicRules, suspected: Container[int] = ()) -> Recorded:
    """Gives the lead to the first replica, if it does not lead, and could, and has been up for long enough; nothing to record otherwise."""
    found = image.topics.get(topic)
    partition = found.partitions.get(index) if found is not None else None
    if found is None or partition is None or not is_imbalanced(image, partition, suspected) or partition.replicas[0] in rules.young:
        return Recorded(())
    record = with_preferred_leader(found.topic_id, index, partition, rules.of(topic, partition, suspected))
    return Recorded(() if record is None else (record,))


def elect_uncleanly(image: ClusterImage, topic: str, index: int, *, rules: TopicRules, suspected: Container[int] = ()) -> Recorded:
    """Gives a partition a leader where its topic allows an unclean election and a replica is up; nothing to record otherwise."""
    found = image.topics.get(topic)
    partition = found.partitions.get(index) if found is not None else None
    if found is None or partition is None or not rules.may_be_unclean(topic):
        return Recorded(())
    record = with_leader(found.topic_id, index, partition, rules.of(topic, partition, suspected))
    return Recorded(() if record is None else (record,))


class Elected(Struct, frozen=True):
    """A partition has another leader than before. ``lost_to`` are those who had what it may lack; none after a clean election."""

    topic: str
    index: int
    leader: int
    lost_to: tuple[int, ...] = ()
    is_unclean: bool = False


def elections_in(image: ClusterImage, records: Iterable[Stored]) -> Iterator[Elected]:
    """Yields the leaders that the records, decided over this image, give to its partitions."""
    for record in records:
        if type(record) is not PartitionChangeRecord or record.leader < 0:
            continue
        topic = image.topic_names[record.topic_id]
        partition = image.topics[topic].partitions[record.partition_id]
        if record.leader == partition.leader:
            continue
        safe = (*partition.isr, *partition.elr)  # one that is eligible may lead as soon as the last one in sync is gone
        has_joined = record.leader_recovery_state < 1 and record.replicas is not None  # with the change that completes a reassignment
        is_unclean = record.leader not in safe and not has_joined
        lost_to = (safe or tuple(node for node in partition.replicas if node != record.leader)) if is_unclean else ()
        yield Elected(topic, record.partition_id, record.leader, lost_to, is_unclean)


def follow_replicas(image: ClusterImage, node: int, is_offline: Callable[[str, int], bool]) -> Recorded:
    """Gives up the partitions that a lone broker leads and cannot serve; takes the leaderless ones whose data it has and can serve.

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
    """Returns the change of leader. A replica that leads without having been in sync is then the only one in sync."""
    record = PartitionChangeRecord(index, topic_id, leader=leader)
    if leader not in partition.isr:
        record.isr = [leader]
    if leader in partition.elr:
        record.eligible_leader_replicas = [node for node in partition.elr if node != leader]
    return record
