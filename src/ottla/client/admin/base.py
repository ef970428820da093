"""What all parts of the admin client share: the cluster, and how an item's error is reported."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

DEFAULT_TIMEOUT_MS = 30_000

Outcome = KafkaError | None
"""None for an item that was done, else why not."""


class AdminBase:
    """Owns its cluster: ``close`` closes the connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def close(self) -> None:
        """Connections are closed. A second call does nothing."""
        await self._cluster.close()

    async def _by_leader(self, partitions: Iterable[TopicPartition]) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        """The partitions by the broker that leads them now, and those without a leader."""
        wanted = list(partitions)
        await self._cluster.refresh({partition.topic for partition in wanted})
        leaders: dict[int, list[TopicPartition]] = {}
        orphans: list[TopicPartition] = []
        for partition in wanted:
            leader = self._cluster.leader(partition)
            if leader is None:
                orphans.append(partition)
            else:
                leaders.setdefault(leader, []).append(partition)
        return dict(sorted(leaders.items())), orphans


def error_of(code: int, message: str | None) -> Outcome:
    return KafkaError(code, message or "") if code else None


def raise_for(code: int, message: str | None) -> None:
    if code:
        raise KafkaError(code, message or "")


def without_leader(partition: TopicPartition) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no leader of {partition.topic}-{partition.partition} is known")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' indexes, topic by topic."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics
