"""What a consumer is to read, or a producer to write, and the cluster does not have: warnings, and errors where no wait would help.

A misspelt topic has no records, and raises no error; what is sent to it waits for it, as long as max.block.ms lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from ottla.client.call_limit import ended_by
from ottla.client.cluster import Cluster
from ottla.client.wrong_calls import check_name
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition, topic_text

log: Final = logging.getLogger("ottla.client")  # as in watch.py
WARNING_MS: Final = 1000
"""For so long a topic did not exist when a producer's wait for it is said: a broker that creates topics by itself takes less."""
LEFT_S_MIN: Final = 0.1
"""The least that is said to be left: the wait has not ended yet."""
WHOLE_SECONDS_FROM: Final = 10
"""What is left of a wait is said in tenths below this."""
_NO_LEADER: Final = "no broker leads the partition: those with a replica in sync are down, or no controller is active that would elect one"


def without_leader(cluster: Cluster, partition: TopicPartition) -> KafkaError | None:
    """Returns why the newest metadata has no leader of the partition; None where it has one."""
    if cluster.leader(partition) is not None:
        return None
    if (absence := absence_of(cluster, partition)) is None:
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, _NO_LEADER)
    if cluster.topic_errors.get(partition.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{absence}, or no longer: it may have been deleted meanwhile")
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, absence)


def absence_of(cluster: Cluster, partition: TopicPartition) -> str | None:
    """Returns what the newest metadata does not have: the topic, or the partition of it. None where it has both."""
    known = cluster.topics.get(partition.topic)
    if known is None:
        return topic_text(partition.topic, is_absent=True)
    if partition.partition not in known.partitions:
        return f"topic {partition.topic!r} has no partition {partition.partition}; it has {len(known.partitions)}"
    return None


class AbsentTopics:
    """The topics and partitions of one client that were warned of: each of them once."""

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

    def refusal(self, topics: Iterable[str]) -> KafkaError | None:
        """Returns why the newest metadata has one of the topics never: its name is not legal, or the user has no right to see it."""
        for topic in topics:
            match self._cluster.topic_errors.get(topic):
                case ErrorCode.INVALID_TOPIC_EXCEPTION:
                    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, topic_text(topic))
                case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the user of this client may not describe topic {topic!r}")
        return None

    def wait(self, topic: str, since_ms: int, deadline_ms: int, what: str = "what is sent to it waits") -> None:
        """Warns of a topic that ``what`` has been waiting for since then; both are times of the monotonic clock."""
        now_ms = self._cluster.world.clock.monotonic_ms()
        is_absent = self._cluster.topic_errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_absent and now_ms - since_ms >= WARNING_MS and topic not in self._warned:
            self._warned.add(topic)
            left_s = max((deadline_ms - now_ms) / 1000, LEFT_S_MIN)
            log.warning("topic %r does not exist; %s for it, for another %.*f s", topic, what, left_s < WHOLE_SECONDS_FROM, left_s)

    async def partitions_for(self, topic: str, *, ms: int, setting: str, allow_create: bool = False) -> list[int]:
        """Returns the numbers of the topic's partitions; waits so long for a topic that does not exist, and warns of it meanwhile.

        ``setting`` is the name of the limit.
        """
        check_name("topic", topic)
        now_ms = self._cluster.world.clock.monotonic_ms()
        deadline_ms = now_ms + ms
        on_wait = partial(self.wait, topic, now_ms, deadline_ms, "partitions_for waits")
        async with ended_by(ms, f"partitions_for has not ended in {setting}={ms}"):
            found = await self._cluster.topic(topic, deadline_ms=deadline_ms, allow_create=allow_create, on_wait=on_wait)
        return sorted(found.partitions)

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
