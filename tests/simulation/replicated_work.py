"""What clients do with replicated partitions: they produce, read, commit, delete records, move replicas and leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from tests.simulation.explorer import Trial
from tests.simulation.replicated_watch import Watch

from ottla.broker.node import Broker
from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_settings import FetchSettings
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.sim.cluster import SimClient
from ottla.sim.workload import History, commit_up, count_while
from ottla.types import TopicPartition

REPLICATED, MOVING, LOOSE, TRIMMED = "replicated", "moving", "loose", "trimmed"
PARTITION_COUNTS = {REPLICATED: 3, MOVING: 1}
TOPICS = [
    NewTopic(REPLICATED, PARTITION_COUNTS[REPLICATED], 3),
    NewTopic(MOVING, assignments={0: [1, 2]}),
    NewTopic(TRIMMED, 1, 3),
    NewTopic(LOOSE, assignments={0: [2, 3]}, configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}),
]
ALL = [TopicPartition(topic, index) for topic, count in PARTITION_COUNTS.items() for index in range(count)]
COMMITS = 60
NODE_PAIRS = [[1, 2], [2, 1], [1, 3], [3, 1], [2, 3], [3, 2]]


class Work:
    """Its history has what acks=all has promised; of the topic that may lose records there is none."""

    def __init__(self, trial: Trial) -> None:
        self.history = History()
        self.bootstrap = trial.bootstrap
        self.watch = Watch(trial.nodes, self.history, trial.result)
        self._trial = trial
        self._simulation = trial.simulation
        self._is_over = trial.is_over
        self._states = trial.states
        self.topics = TOPICS
        self.promised = set(PARTITION_COUNTS)
        """Topics of which all that was acknowledged is kept."""
        self.trimmed_to = 0
        """Below, a client was answered, all records of topic TRIMMED are deleted."""
        self._read: dict[tuple[TopicPartition, int], bytes] = {}
        self._admin = self._client("admin")

    def _client(self, name: str, timeout_ms: int = 5000) -> SimClient:
        return SimClient(self._simulation, name, self.bootstrap, request_timeout_ms=timeout_ms)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        commits = self._client("committing")
        group = commit_up(self.history, commits.cluster(), "g", ALL[0], commits=COMMITS)
        reader, looking = self._client("reader"), self._client("looking")
        return [
            self._produce("all-a", ALL, self.history),
            self._produce("all-b", ALL, self.history),
            self._produce("loose", [TopicPartition(LOOSE, 0)], History(), acks=1, pause_seconds_max=8),
            self._produce("trimmed", [TopicPartition(TRIMMED, 0)], History(), pause_seconds_max=2),
            self._trim(self._client("trimming")),
            commits.machine.run(group),
            reader.machine.run(self._read_all(reader)),
            self._admin.machine.run(self._administer()),
            looking.machine.run(self._look_at_metadata(looking)),
        ]

    async def judge(self, brokers: Mapping[int, Broker]) -> list[str]:
        """What else is wrong, now that everything is healed."""
        return []

    async def prepare(self) -> None:
        """All topics are there, and the watch looks on."""
        self._trial.background.append(asyncio.ensure_future(self.watch.run()))
        await self._admin.machine.run(self._create_topics())

    async def _create_topics(self) -> None:
        admin = Admin(self._admin.cluster())
        missing = {topic.name: topic for topic in self.topics}
        while missing:
            try:
                outcomes = await admin.create_topics(list(missing.values()))
                missing = {name: topic for name, topic in missing.items() if outcomes[name] is not None}
            except KafkaError:
                pass
            if missing:
                await asyncio.sleep(0.2)  # not all brokers are there yet
        await admin.close()

    async def _produce(
        self, name: str, partitions: list[TopicPartition], history: History, *, acks: Any = "all", pause_seconds_max: float = 0.4
    ) -> None:
        client = self._client(name, 3000)
        settings = ProducerSettings(acks=acks, enable_idempotence=acks == "all", linger_ms=0, delivery_timeout_ms=600_000)
        producing = count_while(
            history,
            client.cluster(),
            name,
            partitions,
            goes_on=lambda _: not self._is_over.is_set(),
            settings=settings,
            pause_seconds_max=pause_seconds_max,
        )
        await client.machine.run(producing)

    async def _read_all(self, client: SimClient) -> None:
        consumer = Consumer(client.cluster(), ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest")))
        consumer.assign(ALL)
        while not self._is_over.is_set():
            try:
                records = await consumer.poll(500)
            except KafkaError:
                continue
            for record in records:
                self._read[TopicPartition(record.topic, record.partition), record.offset] = record.value or b""
        self._states["records read"] += len(self._read)
        await consumer.close()

    async def _look_at_metadata(self, client: SimClient) -> None:
        """No broker and no partition comes twice in an answer, and each leader is listed as a broker: Kafka's clients rely on that."""
        cluster, rng = client.cluster(), self._simulation.random("metadata")
        while not self._is_over.is_set():
            await asyncio.sleep(rng.uniform(0.02, 0.5))
            try:
                found = await cluster.ask(None, MetadataRequest(None), MetadataResponse)
            except KafkaError:
                continue
            brokers = [broker.node_id for broker in found.brokers]
            assert len(set(brokers)) == len(brokers), f"metadata lists brokers {brokers}"
            for topic in found.topics:
                indexes = [partition.partition_index for partition in topic.partitions]
                assert len(set(indexes)) == len(indexes), f"metadata lists partitions {indexes} of {topic.name}"
                strangers = {partition.leader_id for partition in topic.partitions} - {-1, *brokers}
                assert not strangers, f"metadata names leaders {strangers} of {topic.name}, and lists brokers {brokers}"
            self._states["metadata looked at"] += 1
        await cluster.close()

    async def _administer(self) -> None:
        """Replicas and leaders move, whatever comes of it."""
        admin, rng = Admin(self._admin.cluster()), self._simulation.random("administration")
        moving = TopicPartition(MOVING, 0)
        while not self._is_over.is_set():
            await asyncio.sleep(rng.uniform(0.3, 2))
            try:
                match rng.randrange(4):
                    case 0:
                        [outcome] = (await admin.elect_leaders()).values() or [None]
                    case 1:
                        [outcome] = (await admin.elect_leaders([TopicPartition(LOOSE, 0)], unclean=True)).values()
                    case 2:
                        [outcome] = (await admin.alter_partition_reassignments({moving: rng.choice(NODE_PAIRS)})).values()
                        self._states["moves begun"] += outcome is None
                    case _:
                        [outcome] = (await admin.alter_partition_reassignments({moving: None})).values()
                        self._states["moves taken back"] += outcome is None
            except (KafkaError, ValueError):
                continue
        await admin.close()

    async def _trim(self, client: SimClient) -> None:
        """Records are deleted, up to the high watermark or to where that was; whoever leads says when they are deleted everywhere."""
        rng, partition = self._simulation.random("trimming"), TopicPartition(TRIMMED, 0)

        async def run() -> None:
            admin = Admin(client.cluster())
            while not self._is_over.is_set():
                await asyncio.sleep(rng.uniform(0.1, 2))
                try:
                    wanted = {partition: rng.choice([-1, self.trimmed_to + rng.randrange(3)])}
                    [outcome] = (await admin.delete_records(wanted, timeout_ms=rng.choice([500, 4000]))).values()
                except KafkaError:
                    continue
                if isinstance(outcome, int):
                    self._states["records deleted everywhere"] += outcome > self.trimmed_to
                    self.trimmed_to = max(self.trimmed_to, outcome)
                else:
                    self._states[f"records not deleted: {outcome.code.name}"] += 1
            await admin.close()

        await client.machine.run(run())

    def what_was_read_is_there(self, logs: Mapping[TopicPartition, Sequence[tuple[int, bytes]]]) -> list[str]:
        """No reader was ever shown what is not, in the end, at that offset."""
        kept = {partition: dict(records) for partition, records in logs.items()}
        found = [
            f"{partition} offset {offset}: {value!r} was read, {kept[partition].get(offset)!r} is there"
            for (partition, offset), value in self._read.items()
            if kept[partition].get(offset) != value
        ]
        return found[:3]
