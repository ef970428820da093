"""Warnings of what a consumer is to read and the cluster does not have: a misspelt topic has no records, and raises no error."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.types import TopicPartition

log: Final = logging.getLogger("ottla.client")  # as in watch.py


class AbsentTopics:
    """The topics and partitions of one consumer that were warned of: each of them once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._warned: set[str | TopicPartition] = set()

    def look(self, topics: Iterable[str]) -> None:
        """Warns of the topics that the newest metadata says do not exist."""
        for topic in topics:
            is_absent = self._cluster.topic_errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_absent and topic not in self._warned:
                self._warned.add(topic)
                log.warning("topic %r does not exist; this consumer reads it as soon as it does", topic)

    def look_for_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Warns of the partitions that the newest metadata says do not exist, and of their topics."""
        wanted = list(partitions)
        self.look({partition.topic for partition in wanted})
        for partition in wanted:
            known = self._cluster.topics.get(partition.topic)
            if known is not None and known.partitions and partition.partition not in known.partitions and partition not in self._warned:
                self._warned.add(partition)
                count = len(known.partitions)
                log.warning(
                    "partition %d of topic %r does not exist, which has %d; this consumer reads it as soon as it does",
                    partition.partition,
                    partition.topic,
                    count,
                )
