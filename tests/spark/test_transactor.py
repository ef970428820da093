"""The exactly-once machine with ottla's own producer, in the simulated world.

Drivers are killed and paused, answers are lost, the broker restarts. Each driver delivers the batches that the one before has left;
the topic has each row once, in its order, whatever came between.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from tests.client.simulated import consumer_of, create, end_of

from ottla.client.admin import Admin, UpgradeType
from ottla.client.admin.groups import CommittedOffset
from ottla.client.cluster import Cluster
from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker, SimClient, Simulation
from ottla.sim.interference import Fate, Held, Interference, Lost
from ottla.sim.loop import run
from ottla.sim.process import PowerCut
from ottla.spark.exactly_once import Ask, Batch, ExactlyOnce, Seal, Step, StopError
from ottla.spark.marker import LOST_MAX, Committed, Marker, Noticed
from ottla.spark.transactor import Transactor
from ottla.types import TopicPartition

APP, SOURCE, TARGET = "app", TopicPartition("in", 0), "out"
BATCH_COUNT, ROW_COUNT, PARTITION_COUNT = 12, 7, 2
MANY = 600
SEEDS = int(os.environ.get("OTTLA_SEEDS", "6"))
SETTINGS = ProducerSettings(
    transactional_id=APP, transaction_timeout_ms=20_000, max_block_ms=15_000, delivery_timeout_ms=20_000, linger_ms=0, batch_size=100
)


class Course:
    """One checkpoint, and the drivers that have it one after the other, or beside each other."""

    def __init__(self, seed: int, met: Counter[str]) -> None:
        self.rng = random.Random(seed)
        self.simulation = Simulation(seed)
        self.broker = SimBroker(self.simulation)
        self.met = met
        self.done = 0
        self._drivers = 0

    async def begin(self, level: int) -> None:
        """The topics are there."""
        await self.broker.start()
        await create(self.broker, SOURCE.topic)
        await create(self.broker, TARGET, PARTITION_COUNT)
        if level == 1:
            admin = Admin(self.broker.client("level"))
            await admin.update_features({"transaction.version": 1}, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
            await admin.close()

    async def main(self, level: int) -> None:
        await self.begin(level)
        while self.done < BATCH_COUNT:
            await self._drive_and_disturb()
        await asyncio.sleep(60)  # whoever was paused has gone on, and has come to nothing
        await self.judge(BATCH_COUNT)

    async def _drive_and_disturb(self) -> None:
        self._drivers += 1
        client = SimClient(self.simulation, f"driver-{self._drivers}", self.broker.bootstrap, request_timeout_ms=3_000)
        driver = asyncio.create_task(self._outcome(client))
        is_last = self._drivers > 40
        ended, _ = await asyncio.wait([driver], timeout=None if is_last else self.rng.expovariate(1 / 0.03))
        if ended:
            return
        kind = self.rng.choice(["kill", "kill", "pause", "pause", "broker"])
        self.met[kind] += 1
        if kind == "broker":
            self.broker.kill(power_cut=False)
            await self.broker.start()
            await asyncio.wait([driver])
        elif kind == "pause":
            client.machine.pause_process()
            asyncio.get_running_loop().call_later(self.rng.expovariate(1 / 0.3), client.machine.resume_process)
        else:
            client.machine.kill_process()

    async def _outcome(self, client: SimClient) -> None:
        try:
            await client.machine.run(self._drive(client))
        except PowerCut:
            return
        except StopError as stop:
            self.met["fenced" if "another producer" in str(stop) else "overtaken" if "is older" in str(stop) else f"stopped: {stop}"] += 1
        except KafkaError as error:
            self.met[error.code.name] += 1

    async def _drive(self, client: SimClient) -> None:
        transactor = Transactor(self._cluster(client), lambda: self._cluster(client), APP, SETTINGS)
        machine = ExactlyOnce(APP)
        for number in range(self.done, BATCH_COUNT):
            self.met["written" if await self.deliver(transactor, machine, batch_of(number)) else "skipped"] += 1
            if self.done > number:
                return  # another driver has noted it: Spark ends this one
            self.done = number + 1

    async def deliver(
        self, transactor: Transactor, machine: ExactlyOnce, batch: Batch, at: Callable[[Ask], Awaitable[None]] | None = None
    ) -> bool:
        """Whether the rows count now, and did not before; ``at`` comes before each step."""
        asking = machine.deliver(batch)
        answer, problem = None, None
        try:
            while True:
                asked = asking.send(answer) if problem is None else asking.throw(problem)
                answer = problem = None
                try:
                    if at is not None:
                        await at(asked)
                    if asked is Step.WRITE:
                        for row in range(batch.number * ROW_COUNT, (batch.number + 1) * ROW_COUNT):
                            await transactor.producer.send(TARGET, b"%d" % row, partition=row % PARTITION_COUNT)
                    else:
                        answer = await transactor.perform(asked)
                except KafkaError as error:
                    problem = transactor.judged(error)
                    self.met[f"{error.code.name} at {asked.value if isinstance(asked, Step) else 'seal'}"] += 1
        except StopIteration as done:
            return bool(done.value)

    def _cluster(self, client: SimClient) -> Cluster:
        """One whose answers are lost or late at times."""
        cluster = client.cluster()

        def alter(request: object, response: object) -> Fate:
            chance = self.rng.random()
            return Lost() if chance < 0.02 else Held(self.rng.uniform(0, 4_000)) if chance < 0.03 else None

        Interference(cluster).alter = alter
        return cluster

    async def judge(self, batch_count: int) -> None:
        """The rows of so many batches are there, each once, in their order."""
        consumer = consumer_of(self.broker.client("judge"), isolation_level="read_committed")
        partitions = [TopicPartition(TARGET, index) for index in range(PARTITION_COUNT)]
        ends = {partition: await end_of(self.broker, partition) for partition in partitions}
        consumer.assign(partitions)
        found: dict[int, list[int]] = {partition.partition: [] for partition in partitions}
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            for record in await consumer.poll(1000):
                found[record.partition].append(int(record.value or b""))
        await consumer.close()
        assert found == {index: list(range(index, batch_count * ROW_COUNT, PARTITION_COUNT)) for index in found}


def batch_of(number: int) -> Batch:
    return Batch("q", number, f"hash {number}", {SOURCE: 0} if number == 0 else None, {SOURCE: (number + 1) * ROW_COUNT})


@pytest.mark.parametrize("level", [1, 2])
def test_no_kill_no_pause_and_no_lost_answer_doubles_or_skips_a_row(level: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            run(Course(seed, met).main(level))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert not [name for name in met if name.startswith("stopped")], met  # one checkpoint and one topic belong together
    for name in ("written", "skipped", "kill", "pause", "broker", "fenced"):
        assert met[name], f"it came to no {name}: {met}"


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("late", [Seal, Step])
@pytest.mark.parametrize("has_another", [False, True])
def test_a_transaction_whose_time_was_over_is_written_again_unless_another_driver_has_written(
    level: int, late: type, has_another: bool
) -> None:
    """Its driver hangs before its offsets, or before its commit: the coordinator ends the transaction, and another driver may come."""
    course = Course(1, Counter())

    async def main() -> None:
        await course.begin(level)

        def driver(name: str) -> Transactor:
            client = SimClient(course.simulation, name, course.broker.bootstrap, request_timeout_ms=3_000)
            return Transactor(client.cluster(), client.cluster, APP, SETTINGS)

        async def deliver(transactor: Transactor, machine: ExactlyOnce, number: int, hangs: bool = False) -> bool:
            async def at(asked: object) -> None:
                if hangs and (isinstance(asked, Seal) if late is Seal else asked is Step.COMMIT):
                    await asyncio.sleep(60)
                    if has_another:
                        another = driver("another"), ExactlyOnce(APP)
                        assert [await deliver(*another, again) for again in (number, number + 1)] == [True, True]

            return await course.deliver(transactor, machine, batch_of(number), at)

        transactor, machine = driver("driver"), ExactlyOnce(APP)
        assert await deliver(transactor, machine, 0)
        with pytest.raises(StopError if has_another else KafkaError) as raised:
            await deliver(transactor, machine, 1, hangs=True)
        if has_another:
            assert "is older than what was written" in str(raised.value)
            with pytest.raises(StopError):
                await deliver(transactor, machine, 1)
        else:
            assert [await deliver(transactor, machine, number) for number in (1, 2)] == [True, True]
        await course.judge(3)

    run(main())


def test_the_marker_is_read_once_no_transaction_has_offsets_that_may_count_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNSTABLE_OFFSET_COMMIT]

    async def committed(admin: Admin, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, CommittedOffset]:
        """One question: two of them may be answered by two coordinators, one of which has been replaced."""
        if not require_stable:
            return {SOURCE: CommittedOffset(4, -1, Marker("q", 2, "h", 2).text())}
        if codes:
            raise KafkaError(codes.pop(0), "not yet")
        return {SOURCE: CommittedOffset(5, -1, Marker("q", 3, "h", 3).text())}

    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        cluster = broker.client("driver")
        transactor = Transactor(cluster, lambda: broker.client("driver"), APP, SETTINGS)
        assert await transactor.perform(Step.READ) == Committed(Marker("q", 3, "h", 3), {SOURCE: 5})

    monkeypatch.setattr(Admin, "committed_offsets", committed)
    run(main())
    assert not codes


def test_a_cluster_that_has_no_such_topic_has_the_marker_for_the_target() -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        await create(broker, TARGET)
        cluster = broker.client("driver")
        transactor = Transactor(cluster, lambda: broker.client("driver"), APP, SETTINGS)
        assert await transactor.places({SOURCE: 5}, topic=TARGET, number=7) == {TopicPartition(TARGET, 0): 8}
        with pytest.raises(KafkaError) as refused:
            await transactor.places({SOURCE: 5}, topic=None, number=7)
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        await create(broker, SOURCE.topic)
        assert await transactor.places({SOURCE: 5}, topic=TARGET, number=7) == {SOURCE: 5}

    run(main())


def test_a_source_of_so_many_partitions_that_their_marker_does_not_fit_into_one_batch_is_committed() -> None:
    """A coordinator takes 1 MiB of offsets at once. With the losses that a marker names that was reached by some hundred partitions."""

    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        await create(broker, SOURCE.topic, MANY)
        transactor = Transactor(broker.client("driver"), lambda: broker.client("driver"), APP, SETTINGS)
        lost = {f"{number}{'a' * 240}-0": (0, 1) for number in range(LOST_MAX)}
        marker = Marker("q", 0, "h", 0, noticed=Noticed(lost=lost))
        assert len(marker.text()) * MANY > 1_200_000
        ends = {TopicPartition(SOURCE.topic, index): index for index in range(MANY)}
        for asked in (Step.FENCE, Step.BEGIN, Seal({key: OffsetAndMetadata(end, marker.text()) for key, end in ends.items()}), Step.COMMIT):
            await transactor.perform(asked)
        assert await transactor.perform(Step.READ) == Committed(marker, ends)

    run(main())


def test_partitions_of_another_cluster_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them was a request of its own, in every batch."""
    asked: list[set[str]] = []
    refresh = Cluster.refresh

    async def noted(cluster: Cluster, topics: Iterable[str], **more: Any) -> None:
        asked.append(set(topics))
        await refresh(cluster, topics, **more)

    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        await create(broker, TARGET)
        transactor = Transactor(broker.client("driver"), lambda: broker.client("driver"), APP, SETTINGS)
        ends = {TopicPartition(topic, index): 1 for topic in ("elsewhere", "there") for index in range(50)}
        monkeypatch.setattr(Cluster, "refresh", noted)
        assert await transactor.places(ends, topic=TARGET, number=7) == {TopicPartition(TARGET, 0): 8}
        assert [topics for topics in asked if topics != {TARGET}] == [{"elsewhere", "there"}]

    run(main())


@pytest.mark.parametrize("deleted", [["other"], ["in", "other"]])
def test_a_topic_that_is_deleted_before_its_offsets_are_committed_holds_its_batch_up_once(deleted: list[str]) -> None:
    """With failOnDataLoss=false the batch comes again, with the same ends. It was refused until the process ended."""
    course = Course(1, Counter())
    other = TopicPartition("other", 0)
    read_to = {SOURCE: ROW_COUNT, other: 5}

    async def main() -> None:
        await course.begin(2)
        await create(course.broker, other.topic)
        client = SimClient(course.simulation, "driver", course.broker.bootstrap, request_timeout_ms=3_000)
        transactor, machine = Transactor(client.cluster(), client.cluster, APP, SETTINGS), ExactlyOnce(APP)

        async def batch() -> Batch:
            return Batch("q", 0, "hash", {SOURCE: 0, other: 0}, await transactor.places(read_to, topic=TARGET, number=0))

        async def at(asked: Ask) -> None:
            if isinstance(asked, Seal):
                admin = Admin(course.broker.client("admin"))
                assert await admin.delete_topics(deleted) == dict.fromkeys(deleted)
                await admin.close()

        planned = await batch()
        assert planned.end == read_to
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await course.deliver(transactor, machine, planned, at)
        again = await batch()
        assert again.end == ({SOURCE: ROW_COUNT} if len(deleted) == 1 else {TopicPartition(TARGET, 0): 1})
        assert await course.deliver(transactor, machine, again)
        await course.judge(1)

    run(main())
