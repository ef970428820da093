"""What metadata says of a cluster: its brokers, its topics, and who leads each partition."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PartitionMetadata:
    """A partition as metadata has it: the ids of its leader, -1 without one, of its replicas, and of those in sync."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]


@dataclass(slots=True)
class TopicMetadata:
    """A topic, with its partitions by their numbers. ``topic_id`` has 16 bytes."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)

    def keep_newer(self, before: TopicMetadata) -> None:
        """Lets no partition go back to an older leader epoch: a broker that lags answers with what was true before."""
        for index, old in before.partitions.items():
            found = self.partitions.get(index)
            if found is not None and found.leader_epoch < old.leader_epoch:
                self.partitions[index] = old


@dataclass(frozen=True, slots=True)
class Node:
    """A broker: its id, and the address at which clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
