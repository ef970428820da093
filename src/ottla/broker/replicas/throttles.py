"""How fast replicas that catch up may be fetched: a rate for what this broker sends as a leader, and one for what it takes as a follower.

Both hold for the replicas that the topics list, ``*`` for all. All bytes of these replicas count, but only those that are out of sync are
held back: an ISR must not shrink because of a throttle. A rate is taken over ``replication.quota.window.num`` windows of
``replication.quota.window.size.seconds``; what has been started is sent, and counts, even where it is more than the rate allows.
Source: KIP-73.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.config import TOPIC_KEYS, BrokerConfig
from ottla.ports import Clock
from ottla.quotas import RateMeter
from ottla.types import TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


class Throttle:
    """One of the two sides. ``topics`` has those with throttled replicas here: their partitions, or None for all."""

    def __init__(self, clock: Clock, config: BrokerConfig, *, rate_key: str, replicas_key: str) -> None:
        window_ms: int = config["replication.quota.window.size.seconds"] * 1000
        self._clock = clock
        self._config = config
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self._window_ms = window_ms
        self._meter = RateMeter(window_count=config["replication.quota.window.num"], window_ms=window_ms, least_ms=window_ms)
        self.topics: dict[str, frozenset[int] | None] = {}

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Takes the topic's configuration from now on."""
        raw = overrides.get(self._replicas_key, "")
        listed: Sequence[str] = TOPIC_KEYS[self._replicas_key].parse(raw) if raw else ()
        self.topics.pop(topic, None)
        if "*" in listed:
            self.topics[topic] = None
            return
        pairs = [item.split(":") for item in listed if ":" in item]
        here = frozenset(int(index) for index, node in pairs if int(node) == self._config.node_id)
        if here:
            self.topics[topic] = here

    def forget(self, topic: str) -> None:
        """Forgets the topic, which was deleted."""
        self.topics.pop(topic, None)

    def is_throttled(self, key: TopicPartition) -> bool:
        """True when this broker's replica is listed."""
        if key.topic not in self.topics:
            return False
        indexes = self.topics[key.topic]
        return indexes is None or key.partition in indexes

    def record(self, size_bytes: int) -> None:
        """Records what was sent, or taken, of throttled replicas."""
        self._meter.record(size_bytes, self._clock.monotonic_ms())

    @property
    def rate(self) -> float:
        """Bytes of throttled replicas in a second."""
        return self._meter.rate(self._clock.monotonic_ms())

    @property
    def is_exceeded(self) -> bool:
        limit: int = self._config[self._rate_key]
        return self.rate > limit

    @property
    def wait_ms(self) -> int:
        """When to look again at a rate that is exceeded: sooner than a window passes, later than at once."""
        return max(1, self._window_ms // 10)


class Throttles:
    """The throttles of one broker."""

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self.leader = Throttle(clock, config, rate_key=LEADER_RATE, replicas_key=LEADER_REPLICAS)
        self.follower = Throttle(clock, config, rate_key=FOLLOWER_RATE, replicas_key=FOLLOWER_REPLICAS)

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Takes the configuration of a topic with replicas here."""
        self.leader.configure(topic, overrides)
        self.follower.configure(topic, overrides)

    def forget(self, topic: str) -> None:
        """Forgets the topic, which was deleted."""
        self.leader.forget(topic)
        self.follower.forget(topic)
