"""Clients that produce, read in a group and commit while nodes are killed, stopped, paused and cut off one at a time.

Each partition has one replica: what its broker led is nobody's while that is fenced, and goes on where it was when it is back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import NODES

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.sim.cluster import SimClient
from ottla.types import TopicPartition

PARTITIONS: Final = 6
HEAL_SECONDS: Final = 240
REQUEST_SECONDS: Final = 5


class FollowingWork:
    def __init__(self, trial: Trial) -> None:
        self.produced: dict[TopicPartition, dict[int, bytes]] = {}
        self.read: Counter[bytes] = Counter()
        self.committed: dict[TopicPartition, int] = {}
        self.unanswered: set[tuple[TopicPartition, int]] = set()
        """Commits of which a try had no answer: it may arrive after later ones, on a connection of its own, as in Kafka."""
        self._trial = trial
        self._is_over = trial.is_over
        self._producing = 2
        self.admin = self._client("admin")

    def _client(self, name: str) -> SimClient:
        return SimClient(self._trial.simulation, name, self._trial.bootstrap, request_timeout_ms=1000 * REQUEST_SECONDS)

    async def prepare(self) -> None:
        """The topic is there, and each broker leads a part of it."""
        await self.admin.machine.run(self._create())

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        producers, readers = ([self._client(f"{job}-{number}") for number in range(2)] for job in ("producer", "reader"))
        producing = [client.machine.run(self._produce(number, client)) for number, client in enumerate(producers)]
        return [*producing, *(client.machine.run(self._read(client)) for client in readers)]

    async def _create(self) -> None:
        admin = Admin(self.admin.cluster())
        while True:
            try:
                if len((await admin.describe_cluster()).nodes) == NODES:
                    await admin.create_topics([NewTopic("t", PARTITIONS)])
                    await admin.describe_topic("t")
                    break
            except KafkaError:
                pass
            await asyncio.sleep(1)
        await admin.close()

    async def _produce(self, number: int, client: SimClient) -> None:
        producer = Producer(client.cluster(), ProducerSettings(linger_ms=0, delivery_timeout_ms=HEAL_SECONDS * 1000))
        sending: set[asyncio.Task[None]] = set()

        async def send(key: TopicPartition, value: bytes) -> None:
            try:
                sent = await producer.send_and_wait(key.topic, value, partition=key.partition)
            except KafkaError as error:
                self._trial.states[f"not delivered: {error.code.name}"] += 1
                return
            self.produced.setdefault(key, {})[sent.offset] = value

        count = 0
        while not self._is_over.is_set():
            count += 1
            sending.add(asyncio.ensure_future(send(TopicPartition("t", count % PARTITIONS), b"%d-%d" % (number, count))))
            await asyncio.sleep(0.05)
        await asyncio.gather(*sending)
        self._producing -= 1
        await producer.close()

    async def _read(self, client: SimClient) -> None:
        """Until all is read that was acknowledged, and nothing more comes."""
        fetch = FetchSettings(auto_offset_reset="earliest")
        consumer = Consumer(client.cluster(), ConsumerSettings(group_id="readers", enable_auto_commit=False, fetch=fetch))
        consumer.subscribe(["t"])

        def is_done() -> bool:
            return not self._producing and all(value in self.read for values in self.produced.values() for value in values.values())

        while not is_done():
            try:
                records = await consumer.poll(500)
                self.read.update(record.value or b"" for record in records)
                if records:
                    ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
                    self.unanswered |= ends.items()
                    began = asyncio.get_running_loop().time()
                    await consumer.commit(ends)
                    if asyncio.get_running_loop().time() - began < REQUEST_SECONDS:  # else it was sent again
                        self.unanswered -= ends.items()
                    for key, end in ends.items():
                        self.committed[key] = max(self.committed.get(key, 0), end)
            except KafkaError as error:
                self._trial.states[f"reader: {error.code.name}"] += 1
        await consumer.close()


async def all_is_kept(trial: Trial) -> list[str]:
    """What was acknowledged and what was committed is there, once."""
    work, findings = trial.work, []
    assert isinstance(work, FollowingWork)
    logs: dict[TopicPartition, list[tuple[int, bytes]]] = {}
    for node in trial.nodes:
        logs |= {key: records for key, records in (await node.logs()).items() if key.topic == "t"}
    for key, values in work.produced.items():
        stored = dict(logs.get(key, []))
        lost = {offset for offset, value in values.items() if stored.get(offset) != value}
        if lost:
            findings.append(f"acknowledged records of {key} are not in the log: {sorted(lost)[:5]}")
        if len(set(stored.values())) < len(stored):
            findings.append(f"{key} has records twice, and the producers are idempotent")

    async def ask() -> dict[TopicPartition, int]:
        admin = Admin(work.admin.cluster())
        found = await admin.committed_offsets("readers")
        await admin.close()
        return {key: committed.offset for key, committed in found.items()}

    found = await work.admin.machine.run(ask())
    for key, offset in work.committed.items():
        if found.get(key, -1) < offset and (key, found.get(key)) not in work.unanswered:
            findings.append(f"{key} was committed up to {offset}, and is at {found.get(key)}")
    trial.states["acknowledged records"] = sum(map(len, work.produced.values()))
    trial.states["offsets committed"] = len(work.committed)
    return findings
