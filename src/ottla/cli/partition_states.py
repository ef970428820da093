"""Which partitions need attention: what ``ottla topic describe`` shows with one of its filters, of one topic or of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.cluster import PartitionMetadata, TopicMetadata
    from ottla.sync import Admin

COLUMNS: Final = ("topic", "partition", "leader", "epoch", "replicas", "in_sync")
UNDER_REPLICATED: Final = "under-replicated"
UNDER_MIN_ISR: Final = "under-min-isr"
AT_MIN_ISR: Final = "at-min-isr"
UNAVAILABLE: Final = "unavailable"
TOPIC: Final = 2


@dataclass(frozen=True, slots=True)
class PartitionState:
    """``adding_count`` replicas are on their way, and not missing yet."""

    partition: PartitionMetadata
    min_isr: int
    adding_count: int = 0

    def is_any(self, states: Collection[str]) -> bool:
        """Whether the partition is in one of these states."""
        partition = self.partition
        count, spare = len(partition.in_sync), len(partition.in_sync) - min(self.min_isr, len(partition.replicas))
        found = {
            UNDER_REPLICATED: count < len(partition.replicas) - self.adding_count,
            UNDER_MIN_ISR: spare < 0,
            AT_MIN_ISR: spare == 0,
            UNAVAILABLE: partition.leader < 0,
        }
        return any(found[state] for state in states)


def rows_in_states(admin: Admin, name: str | None, states: Collection[str]) -> list[tuple[object, ...]]:
    """One row of ``COLUMNS`` for each partition of the topic, or of all, that is in one of the states."""
    topics: Mapping[str, TopicMetadata] = admin.list_topics() if name is None else {name: admin.describe_topic(name)}
    moving = admin.list_partition_reassignments()
    rows: list[tuple[object, ...]] = []
    for topic, found in sorted(topics.items()):
        min_isr = _min_isr(admin, topic) if {UNDER_MIN_ISR, AT_MIN_ISR} & set(states) else 1
        for index, partition in sorted(found.partitions.items()):
            move = moving.get(TopicPartition(topic, index))
            state = PartitionState(partition, min_isr, 0 if move is None else len(move.adding_replicas))
            if state.is_any(states):
                leader = partition.leader if partition.leader >= 0 else None
                rows.append((topic, index, leader, partition.leader_epoch, partition.replicas, partition.in_sync))
    return rows


def _min_isr(admin: Admin, topic: str) -> int:
    found = {config.name: config.value for config in admin.describe_configs(TOPIC, topic)}
    return int(found.get("min.insync.replicas") or 1)
