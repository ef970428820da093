"""What metadata says of a cluster: its brokers, its topics, and who leads each partition."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PartitionMetadata:
    """A partition as metadata has it: the ids of its leader, -1 without one, of its replicas, and of those in sync."""

    leader: int
    """The id of the broker that leads; -1 without one."""
    leader_epoch: int
    """It grows with each election of a leader."""
    replicas: list[int]
    """The ids of the brokers that are to have the partition, the preferred leader first."""
    in_sync: list[int]
    """The replicas that have all records that are acknowledged."""


@dataclass(slots=True)
class TopicMetadata:
    """A topic, with its partitions by their numbers. ``topic_id`` has 16 bytes."""

    name: str
    """The topic's name."""
    topic_id: bytes
    """16 bytes: a topic that is deleted and created again has another id."""
    is_internal: bool
    """Whether the cluster keeps it for itself, as ``__consumer_offsets``."""
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    """What is known of each partition, by its number."""

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
    """Its number, as in ``node.id``."""
    host: str
    """The name or address of its listener for clients."""
    port: int
    """The port of that listener."""
    rack: str | None = None
    """Its ``broker.rack``; None without one."""
