"""Clients at work: producers that count, a committer, and the history of the responses that they received."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.types import TopicPartition

ATTEMPTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker said that the value is at this offset. ``crashes`` had happened by then."""

    partition: TopicPartition
    offset: int
    value: bytes
    crashes: int


@dataclass(slots=True)
class History:
    """The record of what clients sent and received, in order."""

    sent: dict[bytes, tuple[str, TopicPartition]] = field(default_factory=dict)  # value: producer, partition
    acknowledged: list[Acknowledged] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    commits: list[tuple[TopicPartition, int, int]] = field(default_factory=list)  # partition, offset, crashes
    idempotent: set[str] = field(default_factory=set)
    crashes: int = 0
    on_acknowledged: Callable[[Acknowledged], None] = lambda acknowledged: None
    on_commit: Callable[[TopicPartition, int], None] = lambda partition, offset: None
    """Both in the very moment in which a client learns of it."""


async def count_up(
    history: History, cluster: Cluster, name: str, partitions: list[TopicPartition], *, records: int, settings: ProducerSettings
) -> None:
    """Counts up as ``count_while`` does, to that many records."""
    await count_while(history, cluster, name, partitions, goes_on=lambda number: number < records, settings=settings)


async def count_while(
    history: History,
    cluster: Cluster,
    name: str,
    partitions: list[TopicPartition],
    *,
    goes_on: Callable[[int], bool],
    settings: ProducerSettings,
    pause_seconds_max: float = 0.01,
) -> None:
    """Sends ``name-0``, ``name-1`` ... round the partitions, a few at a time; returns when each has its answer."""
    producer = Producer(cluster, settings)
    if settings.enable_idempotence and settings.acks == "all":
        history.idempotent.add(name)
    for number in itertools.takewhile(goes_on, itertools.count()):
        partition = partitions[number % len(partitions)]
        value = f"{name}-{number}".encode()
        history.sent[value] = (name, partition)
        future = await producer.send(partition.topic, value, key=name.encode(), partition=partition.partition)
        future.add_done_callback(lambda done, value=value, partition=partition: _note(history, done, value, partition))  # type: ignore[misc]
        if number % 7 == 6:
            await asyncio.sleep(cluster.world.random.random() * pause_seconds_max)
    await producer.close()


def _note(history: History, done: asyncio.Future[object], value: bytes, partition: TopicPartition) -> None:
    if done.cancelled():
        return
    if done.exception() is not None:
        history.refused.append(value)
        return
    offset: int = done.result().offset  # type: ignore[attr-defined]
    acknowledged = Acknowledged(partition, offset, value, history.crashes)
    history.acknowledged.append(acknowledged)
    history.on_acknowledged(acknowledged)


async def commit_up(history: History, cluster: Cluster, group_id: str, partition: TopicPartition, *, commits: int) -> None:
    """Commits 1, 2, 3 ... as a consumer without a group membership does; what is refused is tried again."""
    consumer = Consumer(cluster, ConsumerSettings(group_id=group_id, enable_auto_commit=False))
    consumer.assign([partition])
    for offset in range(1, commits + 1):
        for attempt in range(ATTEMPTS_MAX):
            try:
                await consumer.commit({partition: offset})
            except KafkaError as error:
                if attempt == ATTEMPTS_MAX - 1:
                    raise AssertionError("a commit is accepted in the end, not refused for ever") from error
                await asyncio.sleep(0.05)
                continue
            break
        history.commits.append((partition, offset, history.crashes))
        history.on_commit(partition, offset)
    await consumer.close()
