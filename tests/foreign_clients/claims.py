"""Members of one group, of several clients, and who owns which partition as they see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, TopicPartition

from ottla import sync

WAIT_SECONDS_MAX = 30.0


class Served(Protocol):
    """Other brokers: where they are reached."""

    @property
    def bootstrap(self) -> str: ...


class Claims:
    """Who owns which partition, as the members see it: a second owner is a failure at once."""

    def __init__(self) -> None:
        self.owners: dict[int, Member] = {}
        self.count = 0

    def claim(self, member: Member, partitions: Sequence[TopicPartition | sync.TopicPartition]) -> None:
        for place in partitions:
            assert place.partition not in self.owners, f"partition {place.partition} has two owners"
            self.owners[place.partition] = member
            self.count += 1

    def release(self, member: Member, partitions: Sequence[TopicPartition | sync.TopicPartition]) -> None:
        for place in partitions:
            assert self.owners.pop(place.partition) is member


class Member(Protocol):
    """A consumer in the group. ``got`` is what it read: partition and offset."""

    got: list[tuple[int, int]]

    @property
    def share(self) -> set[int]: ...
    def poll(self) -> None: ...
    def leave(self) -> None: ...


def new_member(broker: Served, topic: str, group: str, claims: Claims, strategy: str) -> Member:
    """A member: of librdkafka; of ottla's client where the strategy begins with ``own-``. ``consumer-`` is the new protocol."""
    own, _, rest = strategy.partition("-")
    return OwnMember(broker, topic, group, claims, rest) if own == "own" else ConfluentMember(broker, topic, group, claims, strategy)


class ConfluentMember:
    """librdkafka in the group; its callbacks run in ``poll``. ``consumer-uniform`` and ``consumer-range`` are those of the new protocol."""

    def __init__(self, broker: Served, topic: str, group: str, claims: Claims, strategy: str) -> None:
        self._claims = claims
        kind, _, assignor = strategy.partition("-")
        protocol: dict[str, Any] = {"heartbeat.interval.ms": 50, "partition.assignment.strategy": strategy}
        if kind == "consumer":
            protocol = {"group.protocol": "consumer", "group.remote.assignor": assignor}
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
            | protocol
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self.got: list[tuple[int, int]] = []

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._claims.claim(self, partitions)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._claims.release(self, partitions)

    @property
    def share(self) -> set[int]:
        return {partition for partition, owner in self._claims.owners.items() if owner is self}

    def poll(self) -> None:
        for message in self._consumer.consume(500, 0.02):
            assert message.error() is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.got.append((partition, offset))

    def leave(self) -> None:
        self._consumer.close()


class OwnMember:
    """ottla's client. A topic that begins with ^ is a pattern, as for librdkafka."""

    def __init__(self, broker: Served, topic: str, group: str, claims: Claims, strategy: str) -> None:
        self._claims = claims
        kind, _, assignor = strategy.partition("-")
        settings: Any = {"partition_assignment_strategy": [strategy], "heartbeat_interval_ms": 50}
        if kind == "consumer":
            settings = {"group_protocol": "consumer", "group_remote_assignor": assignor}
        self._consumer = sync.Consumer(broker.bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **settings)
        self._consumer.subscribe(
            [] if topic.startswith("^") else [topic],
            pattern=sync.SubscriptionPattern(topic) if topic.startswith("^") else None,
            on_assigned=lambda partitions: self._claims.claim(self, partitions),
            on_revoked=lambda partitions: self._claims.release(self, partitions),
        )
        self.got: list[tuple[int, int]] = []

    @property
    def share(self) -> set[int]:
        return {partition for partition, owner in self._claims.owners.items() if owner is self}

    def poll(self) -> None:
        self.got += [(record.partition, record.offset) for record in self._consumer.poll(20)]

    def leave(self) -> None:
        self._consumer.close()


def poll_until(members: Sequence[Member], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, [one.share for one in members]
        for one in members:
            one.poll()
