"""Throttles of replication: which replicas they hold for, and how a rate is measured (KIP-73)."""

from __future__ import annotations

import pytest

from ottla.broker.replicas.throttles import Throttle, Throttles
from ottla.config import BrokerConfig
from ottla.types import TopicPartition


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_us(self) -> int:
        return self.ms * 1000

    def now_ms(self) -> int:
        return self.ms


def throttles(clock: Clock, **properties: str) -> Throttles:
    given = {"node.id": "7", "leader.replication.throttled.rate": "1000"}
    return Throttles(clock, BrokerConfig(given | {key.replace("_", "."): value for key, value in properties.items()}))


def listed(text: str) -> Throttle:
    throttle = throttles(Clock()).leader
    throttle.configure("t", {"leader.replication.throttled.replicas": text})
    return throttle


@pytest.mark.parametrize(
    ("text", "indexes"), [("0:7,2:7", {0, 2}), ("0:7, 1:8", {0}), ("1:8", set()), ("*", {0, 1, 2}), ("", set()), ("none", set())]
)
def test_partition_and_broker_are_listed_or_all_are(text: str, indexes: set[int]) -> None:
    throttle = listed(text)
    assert {index for index in range(3) if throttle.is_throttled(TopicPartition("t", index))} == indexes
    assert not throttle.is_throttled(TopicPartition("other", 0))
    throttle.configure("t", {})
    assert not throttle.topics, "an empty list costs nothing"


def test_a_deleted_topic_leaves_nothing() -> None:
    both = throttles(Clock())
    both.configure("t", {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "1:7"})
    assert both.leader.topics
    assert both.follower.topics
    both.forget("t")
    assert not both.leader.topics
    assert not both.follower.topics


def test_a_rate_is_what_was_copied_over_the_time_since_the_oldest_window_began() -> None:
    clock = Clock()
    throttle = throttles(clock, replication_quota_window_num="3").leader
    assert not throttle.is_exceeded
    throttle.record(1000)
    assert (throttle.rate, throttle.is_exceeded) == (1000, False), "the first window counts entirely"
    throttle.record(1)
    assert throttle.is_exceeded
    clock.ms += 2000
    assert throttle.rate == pytest.approx(500.5)
    throttle.record(3000)
    assert throttle.rate == pytest.approx(2000.5)
    clock.ms += 1000
    assert throttle.rate == pytest.approx(3000), "what is older than three windows is forgotten"
    clock.ms += 2000
    assert throttle.rate == 0


def test_without_a_rate_nothing_is_ever_too_much() -> None:
    throttle = Throttles(Clock(), BrokerConfig({"node.id": "7"})).leader
    throttle.record(2**50)
    assert not throttle.is_exceeded
