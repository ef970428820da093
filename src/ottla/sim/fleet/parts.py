"""A node with its clients, and what these know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetcher import FetchSettings
from ottla.client.group_membership import MembershipSettings
from ottla.client.producer import ProducerSettings
from ottla.errors import KafkaError
from ottla.sim.cluster import SimBroker, SimClient, Simulation
from ottla.sim.workload import History, commit_up, count_while
from ottla.types import TopicPartition

TOPIC: Final = "orders"
PARTITIONS: Final = [TopicPartition(TOPIC, index) for index in range(2)]
GROUP: Final = "readers"
RETRY_SECONDS: Final = 0.1
REQUEST_TIMEOUT_MS: Final = 2000
COMMITS: Final = 20
PAUSE_SECONDS_MAX: Final = 0.3
"""Of a producer, after seven records."""


class Unit(SimBroker):
    """A node, its producers, the members of its group and its committer."""

    def __init__(self, simulation: Simulation, number: int, properties: Mapping[str, str]) -> None:
        super().__init__(simulation, {"node.id": str(number)} | dict(properties), name=f"node-{number}")
        self.history = History()  # whose crashes are power cuts: what a killed process had written stays
        self.read: dict[tuple[TopicPartition, int], bytes] = {}  # by the group
        self.findings: list[str] = []
        names = [f"{job}-{number}" for job in ("producer", "committer", "member", "other")]
        self.clients = {name: SimClient(simulation, name, self.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS) for name in names}

    def kill(self, *, power_cut: bool) -> None:
        self.history.crashes += power_cut
        super().kill(power_cut=power_cut)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Those that are used."""
        name = self.machine.name
        return [link for client in self.clients for link in ((client, name), (name, client))]

    async def set_up(self) -> None:
        await self.start()
        admin = Admin(self.client(f"admin-{self.machine.name}"))
        assert await admin.create_topics([NewTopic(TOPIC, len(PARTITIONS))]) == {TOPIC: None}
        await admin.close()

    async def work(self, is_over: asyncio.Event) -> None:
        """Until it is over, and every record has its answer. The members go on until ``stop_reading``."""
        producer, committer, *members = self.clients.values()
        loop = asyncio.get_running_loop()
        self._reading = [loop.create_task(member.machine.run(self._take_part(member))) for member in members]
        plain = ProducerSettings(acks="1", enable_idempotence=False, linger_ms=1, batch_size=300)
        await asyncio.gather(
            producer.machine.run(self._produce(producer, "once", is_over, ProducerSettings(linger_ms=1, batch_size=200))),
            producer.machine.run(self._produce(producer, "plain", is_over, plain)),
            committer.machine.run(commit_up(self.history, committer.cluster(), "alone", PARTITIONS[0], commits=COMMITS)),
        )

    async def stop_reading(self) -> None:
        """The members are killed."""
        for client in self.clients.values():
            client.machine.kill_process()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _produce(self, client: SimClient, name: str, is_over: asyncio.Event, settings: ProducerSettings) -> None:
        await count_while(
            self.history,
            client.cluster(),
            name,
            PARTITIONS,
            goes_on=lambda _: not is_over.is_set(),
            settings=settings,
            pause_seconds_max=PAUSE_SECONDS_MAX,
        )

    async def _take_part(self, client: SimClient) -> None:
        """A member polls, leaves, and comes back."""
        membership = MembershipSettings(session_timeout_ms=6000, heartbeat_interval_ms=500)
        settings = ConsumerSettings(
            group_id=GROUP, membership=membership, auto_commit_interval_ms=200, fetch=FetchSettings(auto_offset_reset="earliest")
        )
        while True:
            cluster = client.cluster()
            consumer = Consumer(cluster, settings)
            try:
                consumer.subscribe([TOPIC])
                for _ in range(10 + cluster.world.random.randrange(50)):
                    for record in await consumer.poll(100):
                        self._note(TopicPartition(record.topic, record.partition), record.offset, record.value or b"")
            except KafkaError:
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                await _close(consumer)

    def _note(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        if self.history.sent.get(value, ("", None))[1] != partition:
            self.findings.append(f"{partition} offset {offset}: a reader got {value!r}, which was never sent there")
        self.read[partition, offset] = value


async def _close(consumer: Consumer) -> None:
    try:
        await consumer.close()
    except KafkaError:
        return  # what it could not commit is read again
