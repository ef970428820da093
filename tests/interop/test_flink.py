"""Apache Flink 2.2 and its Kafka connector, exactly once: a job that sums numbers by key, while everything that it runs on is killed.

The job fails three times by itself and its JVM is killed twice; each begins again with its last checkpoint. Each broker is killed once.
Both ways in which the sink names its transactions are tried: INCREMENTING takes a new transactional id for each transaction, and finds what
an earlier run left open by probing; POOLING uses few ids again and again, and finds what was left open with ListTransactions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from tests.cluster.processes import ClusterProcesses
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.interop.java_process import STEP_SECONDS_MAX, JavaProcess
from tests.interop.tools import HERE, TARGET, maven, program
from tests.waiting import eventually

from ottla.sync import Admin, NewTopic, OffsetSpec, Producer, TopicPartition

PARTITION_COUNT = 4
SUM_PARTITION_COUNT = 3
KEY_COUNT = 20
"""The numbers of one key are all in one partition."""
NUMBER_COUNT = 12_000
AHEAD_COUNT = 800
"""So many numbers, at most, are written before their sums are read: there is work to do whenever something is killed."""
FAILS_AT = (1_500, 5_500, 9_500)
STATES_WITHOUT_AN_END = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@pytest.fixture(scope="module")
def java_flink() -> list[str]:
    """The command that runs the job."""
    maven("compile", cwd=HERE / "java_flink")
    class_path = f"{TARGET}/java_flink/classes:{TARGET}/java_flink/lib/*"
    return [program("java", way_to_get_it="apt install openjdk-17-jdk-headless"), "-Xmx500m", "-cp", class_path, "interop.Sums"]


class Flow:
    """Numbers go in, sums come out, and a job is between them, in a JVM of its own."""

    def __init__(self, command: list[str], bootstrap: str, naming: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._command = [*command, bootstrap, naming, str(directory), str(KEY_COUNT), ",".join(map(str, FAILS_AT))]
        self._producer = Producer(bootstrap)
        self._written_count = 0
        self._starts = 0
        self._reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._places = [confluent_kafka.TopicPartition("sums", partition, 0) for partition in range(SUM_PARTITION_COUNT)]
        self._reader.assign(self._places)
        self.read: Counter[str] = Counter()

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.close()
        self._producer.close()

    @contextmanager
    def job(self) -> Iterator[JavaProcess]:
        """It runs, from the last checkpoint that there is; killed at the end, if it has not ended."""
        checkpoints = sorted(self._directory.glob("checkpoints/*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime_ns)
        assert bool(checkpoints) == bool(self._starts), "it goes on where it was"
        last = [str(checkpoints[-1].parent)] if checkpoints else []
        self._starts += 1
        with JavaProcess([*self._command, *last], self._directory / f"job-{self._starts}.out") as job:
            yield job

    def go_on(self, job: JavaProcess, until: int) -> None:
        """So many sums have been read, and more numbers are on their way."""
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while self.read.total() < until:
            self._write()
            assert time.monotonic() < deadline, f"{self.read.total()} of {until} sums: {job.said[-6000:]}"
            assert not job.has_ended, job.said[-6000:]
            self._take(0.05)
        self._write()

    def stop(self, job: JavaProcess) -> None:
        """The job ends in order: with a savepoint, and what it has written is committed."""
        (self._directory / "stop").touch()
        assert "the job has ended" in job.wait_until_ended(STEP_SECONDS_MAX)

    def read_to_the_end(self) -> None:
        """All that is in the topic has been read; an open transaction would hold readers back before the end."""
        with Admin(self._bootstrap) as admin:
            found = admin.offsets_for_times({TopicPartition("sums", place.partition): OffsetSpec.LATEST for place in self._places})
        ends = {place.partition: offset.offset for place, offset in found.items()}

        def positions() -> dict[int, int]:
            self._take(0.05)
            return {place.partition: place.offset for place in self._reader.position(self._places)}

        eventually(positions, lambda found: found == ends)

    def _write(self) -> None:
        while self._written_count < min(NUMBER_COUNT, self.read.total() + AHEAD_COUNT):
            number = self._written_count
            self._producer.send("numbers", b"%d" % number, partition=number % PARTITION_COUNT)
            self._written_count += 1

    def _take(self, seconds: float) -> None:
        for message in self._reader.consume(1000, seconds):
            if message.error() is None:
                self.read[(message.value() or b"").decode()] += 1


def sums() -> Counter[str]:
    """What the job writes, if each number counts once."""
    by_key = [0] * KEY_COUNT
    found: Counter[str] = Counter()
    for number in range(NUMBER_COUNT):
        by_key[number % KEY_COUNT] += number
        found[f"{number},{by_key[number % KEY_COUNT]}"] += 1
    return found


def check(flow: Flow, bootstrap: str, directory: Path) -> None:
    """Each number counted once, and no transaction is open."""
    with Admin(bootstrap) as admin:
        assert admin.list_transactions(states=STATES_WITHOUT_AN_END) == []
    flow.read_to_the_end()
    assert flow.read == sums()
    assert sorted(file.name for file in directory.glob("failed-at-*")) == sorted(f"failed-at-{number}" for number in FAILS_AT)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_sums_exactly_once_over_kills_of_one_broker(java_flink: list[str], naming: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, port=lasting_port()) as broker:
        new = [NewTopic("numbers", PARTITION_COUNT, 1), NewTopic("sums", SUM_PARTITION_COUNT, 1)]
        with Admin(broker.bootstrap) as admin:
            assert admin.create_topics(new) == {"numbers": None, "sums": None}

        def bounce() -> None:
            broker.kill()
            broker.start()

        run(java_flink, broker.bootstrap, naming, tmp_path, [bounce, bounce, bounce])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_sums_exactly_once_over_kills_of_three_brokers(java_flink: list[str], naming: str, tmp_path: Path) -> None:
    """One after the other."""
    with ClusterProcesses(tmp_path) as cluster:
        replicated = {"min.insync.replicas": "2"}
        new = [NewTopic("numbers", PARTITION_COUNT, 3, configs=replicated), NewTopic("sums", SUM_PARTITION_COUNT, 3, configs=replicated)]
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics(new) == {"numbers": None, "sums": None}

        def bounce_of(node: BrokerProcess) -> Callable[[], None]:
            def bounce() -> None:
                node.kill()
                node.start()

            return bounce

        run(java_flink, cluster.bootstrap, naming, tmp_path, [bounce_of(node) for node in cluster.nodes.values()])


def run(command: list[str], bootstrap: str, naming: str, directory: Path, bounces: list[Callable[[], None]]) -> None:
    """The job, with two kills of its JVM, and a broker that goes and comes back before, between and after them."""
    first, second, third = bounces
    with Flow(command, bootstrap, naming, directory) as flow:
        with flow.job() as job:
            flow.go_on(job, 2_000)
            first()
            flow.go_on(job, 4_000)
        with flow.job() as job:
            flow.go_on(job, 6_000)
            second()
            flow.go_on(job, 8_000)
        with flow.job() as job:
            flow.go_on(job, 10_000)
            third()
            flow.go_on(job, NUMBER_COUNT)
            flow.stop(job)
        check(flow, bootstrap, directory)
