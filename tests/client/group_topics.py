"""The topics that the group of the model reads: written to, grown, and deleted and made again."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Final

from tests.client.group_laws import Group, now
from tests.client.group_member import TOPICS
from tests.cluster.in_simulation import SimNodes

from ottla.client.admin import Admin, NewTopic
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimClient
from ottla.types import TopicPartition

RECOVERY: Final = 100.0


class Topics:
    """What the group reads: who writes to it, and how it is changed."""

    def __init__(self, nodes: SimNodes, rng: random.Random, group: Group) -> None:
        self.nodes = nodes
        self.rng = rng
        self.group = group
        self.incarnations = dict.fromkeys(TOPICS, 0)
        self.counts = dict(TOPICS)
        self.acknowledged: dict[tuple[TopicPartition, int], int] = {}  # the offset after the last one
        self.sending: set[asyncio.Task[None]] = set()
        self.is_writing = True
        self.is_over = False

    # Who writes

    async def write(self, client: SimClient) -> None:
        producer = Producer(client.cluster(), ProducerSettings(acks="all"))
        numbers = itertools.count()

        async def send(key: TopicPartition) -> None:
            incarnation = self.incarnations[key.topic]
            try:
                sent = await producer.send_and_wait(key.topic, b"%d %d" % (incarnation, next(numbers)), partition=key.partition)
            except KafkaError:
                return
            of = key, incarnation
            self.acknowledged[of] = max(self.acknowledged.get(of, 0), sent.offset + 1)

        while not self.is_over:
            if self.is_writing:
                topic = self.rng.choice(list(TOPICS))
                key = TopicPartition(topic, self.rng.randrange(self.counts[topic]))
                for _ in range(self.rng.choice([1, 1, 10])):
                    task = asyncio.create_task(send(key))
                    self.sending.add(task)
                    task.add_done_callback(self.sending.discard)
            await asyncio.sleep(self.rng.choice([0.2, 1, 2]))
        await asyncio.gather(*self.sending)
        await producer.close()

    async def grow(self, topic: str) -> None:
        self.counts[topic] += 1
        await self._administer(lambda admin: admin.create_partitions({topic: self.counts[topic]}), ErrorCode.INVALID_PARTITIONS)

    async def remake(self, topic: str) -> None:
        self.is_writing = False
        await asyncio.gather(*self.sending)
        self.group.forget(topic)
        await self._administer(lambda admin: admin.delete_topics([topic]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.incarnations[topic] += 1
        self.counts[topic] = TOPICS[topic]
        await self.make(topic)
        self.is_writing = True

    async def make(self, topic: str) -> None:
        places = {index: [1 + (index + place) % 3 for place in range(3)] for index in range(TOPICS[topic])}
        await self._administer(lambda admin: admin.create_topics([NewTopic(topic, assignments=places)]), ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _administer(self, ask: Callable[[Admin], Awaitable[dict[str, KafkaError | None]]], done: ErrorCode | None = None) -> None:
        """``done`` says that an earlier try has done it, which had no answer."""
        deadline = now() + RECOVERY
        while True:
            try:
                (error,) = (await self.nodes.act(lambda cluster: ask(Admin(cluster)))).values()
            except KafkaError as raised:
                error = raised
            if error is None or error.code == done:
                return
            assert now() < deadline, error
            await asyncio.sleep(1)
