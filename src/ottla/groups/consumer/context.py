"""What a decision about a consumer group is made from, besides the group: time, topics, configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec import Struct

from ottla.groups.settings import ConsumerGroupSettings
from ottla.metadata.image import RESOURCE_GROUP, ClusterImage


class Context(Struct, frozen=True):
    settings: ConsumerGroupSettings
    image: ClusterImage
    now_ms: int

    def session_timeout_ms(self, group_id: str) -> int:
        limits = self.settings
        given = self._configured(group_id, "consumer.session.timeout.ms", limits.session_timeout_ms)
        return min(max(given, limits.session_timeout_ms_min), limits.session_timeout_ms_max)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        limits = self.settings
        given = self._configured(group_id, "consumer.heartbeat.interval.ms", limits.heartbeat_interval_ms)
        return min(max(given, limits.heartbeat_interval_ms_min), limits.heartbeat_interval_ms_max)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Returns the shortest time between two targets of the group."""
        limits = self.settings
        given = self._configured(group_id, "consumer.assignment.interval.ms", limits.assignment_interval_ms)
        return min(max(given, limits.assignment_interval_ms_min), limits.assignment_interval_ms_max)

    def _configured(self, group_id: str, key: str, otherwise: int) -> int:
        """Returns the group's value within bounds: the controller has checked it; a bound may have been moved since."""
        own = self.image.configs.get((RESOURCE_GROUP, group_id))
        return otherwise if own is None or key not in own else int(own[key])

    def topic_ids(self, names: Iterable[str]) -> frozenset[bytes]:
        """Returns the ids of the topics that exist."""
        topics = self.image.topics
        return frozenset(topics[name].topic_id for name in names if name in topics)

    def partition_count(self, topic_id: bytes) -> int:
        return len(self.image.topics[self.image.topic_names[topic_id]].partitions)

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Returns a hash of the topics that exist: it changes when one is made, grows, or is deleted. 0 without any."""
        topics = self.image.topics
        known = sorted(topics[name].topic_id + len(topics[name].partitions).to_bytes(4, "big") for name in set(names) if name in topics)
        if not known:
            return 0
        return int.from_bytes(hashlib.blake2b(b"".join(known), digest_size=8).digest(), "big", signed=True)
