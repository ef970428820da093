"""The topics that a producer has sent to lately: their metadata is refreshed at its age, and that of others is forgotten."""

from __future__ import annotations

from collections.abc import Container

from ottla.client.cluster import Cluster


class UsedTopics:
    def __init__(self, cluster: Cluster, *, idle_ms_max: int) -> None:
        self._cluster = cluster
        self._idle_ms_max = idle_ms_max
        self._used_ms: dict[str, int] = {}  # when a batch was last opened, by topic
        self._renew_ms = 0  # metadata is not refreshed for its age before

    def __bool__(self) -> bool:
        return bool(self._used_ms)

    def use(self, topic: str, now_ms: int) -> None:
        """Records that a batch of the topic is opened."""
        self._used_ms[topic] = now_ms

    def left_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until metadata has reached its age, and a refresh of it may be tried."""
        return max(self._cluster.age_left_ms(), self._renew_ms - now_ms)

    def start_refresh(self, now_ms: int, busy: Container[str]) -> int:
        """Forgets the metadata of topics that are idle, and have no records waiting. Returns the milliseconds until the next try."""
        idle = [topic for topic, used_ms in self._used_ms.items() if topic not in busy and now_ms - used_ms >= self._idle_ms_max]
        for topic in idle:
            del self._used_ms[topic]
        self._cluster.forget(idle)
        pause_ms = self._cluster.backoff.last_ms
        self._renew_ms = now_ms + pause_ms
        return pause_ms
