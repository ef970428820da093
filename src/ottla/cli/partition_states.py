"""Which partitions need attention: what ``ottla topic describe`` shows with one of its filters, of one topic or of all.

The filters mean nearly the same as in kafka-topics: a partition without a leader has too few in sync whatever its ISR says, one whose
leader does not serve is unavailable. ``min.insync.replicas`` counts up to the number of replicas only, as for brokers and their metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ottla.cli.output import with_way_out
from ottla.cli.quorum_voters import takes_connections
from ottla.cli.starting import how_to_start
from ottla.cli.unanswered import SILENT, Unanswered
from ottla.cli.unseen_topics import unseen_text
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Reassignment
    from ottla.client.cluster_metadata import PartitionMetadata, TopicMetadata
    from ottla.sync import Admin

COLUMNS: Final = ("topic", "partition", "leader", "epoch", "replicas", "in_sync")
UNDER_REPLICATED: Final = "under-replicated"
UNDER_MIN_ISR: Final = "under-min-isr"
MIN_ISR: Final = "min.insync.replicas"
AT_MIN_ISR: Final = "at-min-isr"
UNAVAILABLE: Final = "unavailable"


class PartitionState(Struct, frozen=True):
    """``adding_count`` replicas are on their way, and not missing yet; ``serving`` are the brokers that may be leaders."""

    partition: PartitionMetadata
    min_isr: int
    serving: Set[int]
    adding_count: int = 0

    def is_any(self, states: Collection[str]) -> bool:
        """True when the partition is in one of these states."""
        partition = self.partition
        count, min_isr = len(partition.in_sync), min(self.min_isr, len(partition.replicas))
        found = {
            UNDER_REPLICATED: count < len(partition.replicas) - self.adding_count,
            UNDER_MIN_ISR: partition.leader < 0 or count < min_isr,
            AT_MIN_ISR: count == min_isr,
            UNAVAILABLE: partition.leader not in self.serving,
        }
        return any(found[state] for state in states)


def rows_in_states(admin: Admin, names: Collection[str], states: Collection[str], unanswered: Unanswered) -> list[tuple[object, ...]]:
    """Returns one row of ``COLUMNS`` for each partition of the topics, or of all without any, that is in one of the states."""
    topics: Mapping[str, TopicMetadata] = {name: admin.describe_topic(name) for name in names} if names else admin.list_topics()
    if not names and (unseen := unseen_text(admin, topics)) is not None:
        unanswered.say(unseen)
    moving = _moving(admin, unanswered) if UNDER_REPLICATED in states else {}
    nodes = admin.describe_cluster().nodes
    serving = {node.node_id for node in nodes}
    if UNAVAILABLE in states:
        for node in nodes:
            if not takes_connections(f"{node.host}:{node.port}"):
                serving.remove(node.node_id)
                unanswered.say(f"broker {node.node_id} takes no connection at {node.host}:{node.port}{how_to_start([node.node_id])}")
    min_isrs = min_isr_of(admin, topics) if {UNDER_MIN_ISR, AT_MIN_ISR} & set(states) else {}
    rows: list[tuple[object, ...]] = []
    for topic, found in sorted(topics.items()):
        min_isr = min_isrs.get(topic, 1)
        for index, partition in sorted(found.partitions.items()):
            move = moving.get(TopicPartition(topic, index))
            state = PartitionState(partition, min_isr, serving, 0 if move is None else len(move.adding))
            if state.is_any(states):
                leader = partition.leader if partition.leader >= 0 else None
                rows.append((topic, index, leader, partition.leader_epoch, partition.replicas, partition.in_sync))
    return rows


def _moving(admin: Admin, unanswered: Unanswered) -> Mapping[TopicPartition, Reassignment]:
    """Returns the moves; none, and says so, where no controller answers."""
    moves, error = moves_known(admin)
    if error is not None:
        unanswered.say(with_way_out(KafkaError(error.code, f"replicas that are being moved count as missing: {error.message}")))
    return moves


def moves_known(admin: Admin) -> tuple[Mapping[TopicPartition, Reassignment], KafkaError | None]:
    """Returns the moves, which the active controller alone knows; none, and the error, where no controller answers."""
    try:
        return admin.list_partition_reassignments(), None
    except KafkaError as error:
        if error.code != ErrorCode.NOT_CONTROLLER and error.code not in SILENT:
            raise
        return {}, error


def min_isr_of(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """Returns ``min.insync.replicas`` of each topic."""
    return {topic: int(value or 1) for topic, value in admin.describe_config_of_topics(topics, "min.insync.replicas").items()}


def is_tight(min_isr: int, replica_count: int) -> bool:
    """Returns whether acks=all is refused as soon as one replica is not in sync, of a topic that has so many."""
    return min_isr > replica_count or min_isr == replica_count > 1


def topics_beyond(admin: Admin) -> str | None:
    """Returns a warning, where topics have no replica to spare of the ``min.insync.replicas`` in force; internal ones are passed over."""
    counts = {
        name: min((len(partition.replicas) for partition in topic.partitions.values()), default=0)
        for name, topic in admin.list_topics().items()
        if not topic.is_internal
    }
    values = min_isr_of(admin, counts)
    found = sorted(name for name, count in counts.items() if is_tight(values.get(name, 1), count) and count > 1)
    if not found:
        return None
    shown = ", ".join(found[:5]) + ", ..." * (len(found) > 5)
    have = f"{len(found)} topic{'s'[: len(found) != 1]} ({shown}) {'has' if len(found) == 1 else 'have'} no more replicas than "
    return f"warning: {have}min.insync.replicas: acks=all is refused there while one of them is not in sync"


def min_isr_beyond(admin: Admin, topic: str, text: str | None, replica_count: int | None = None) -> str | None:
    """Returns a warning, where the topic has no replica to spare of this ``min.insync.replicas``; without a count it is looked up."""
    if text is None or not text.strip().isdecimal():
        return None
    if replica_count is None:
        replica_count = min((len(partition.replicas) for partition in admin.describe_topic(topic).partitions.values()), default=0)
    if not is_tight(int(text), replica_count):
        return None
    has = f"topic {topic} has {replica_count} replica{'s'[: replica_count != 1]} of each partition"
    return f"warning: min.insync.replicas={text.strip()}, and {has}: acks=all is refused while one of them is not in sync"


def default_replicas(admin: Admin, controllers: Iterable[int]) -> int:
    """Returns how many replicas a topic has by default, by the first that answers; 1 where none does. It is a matter of controllers."""
    from ottla.client.admin import Broker

    for node in controllers:
        try:
            return int(admin.describe_configs(Broker(node))["default.replication.factor"].value or 1)
        except (OttlaError, KeyError):
            continue
    return 1
