"""Apache Flink 2.2 and its Kafka connector, exactly once: a job that sums numbers by key, while everything that it runs on is killed.

The job fails three times by itself. Its JVM is killed with a transaction open, dies when a checkpoint is complete and its transactions are
not committed, and dies right after they are. Each time the job begins again with its last checkpoint. A broker is killed three times; of
three brokers each, once.
Both ways in which the sink names its transactions are tried: INCREMENTING takes a new transactional id for each transaction, and finds what
an earlier run left open by probing; POOLING uses few ids again and again, and finds what was left open with ListTransactions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
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
    """Returns the command that runs the job."""
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
        """Starts the job from the last checkpoint that there is, and kills it at the end, if it has not ended."""
        checkpoints = sorted(self._directory.glob("checkpoints/*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime_ns)
        assert bool(checkpoints) == bool(self._starts), "it goes on where it was"
        last = [str(checkpoints[-1].parent)] if checkpoints else []
        self._starts += 1
        with JavaProcess([*self._command, *last], self._directory / f"job-{self._starts}.out") as job:
            yield job

    def go_on(self, job: JavaProcess, until: int) -> None:
        """Writes numbers and reads sums until so many have been read; more numbers are on their way then."""
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while self.read.total() < until:
            self._write()
            assert time.monotonic() < deadline, f"{self.read.total()} of {until} sums: {job.said[-6000:]}"
            assert not job.has_ended, job.said[-6000:]
            self._take(0.05)
        self._write()

    def kill(self, job: JavaProcess) -> None:
        """Kills the JVM, as by kill -9, while it has a transaction open: the next one has to find and to abort it."""
        with Admin(self._bootstrap) as admin:

            def opened() -> bool:
                self._write()
                self._take(0.0)
                return bool(admin.list_transactions(states=["Ongoing"]))

            eventually(opened, bool)
            job.kill()

    def die(self, job: JavaProcess, when: str) -> None:
        """Lets the JVM die when its next checkpoint is complete; ``when`` is a file that it looks for."""
        (self._directory / when).touch()
        job.wait_until_ended(STEP_SECONDS_MAX)
        assert not (self._directory / when).exists(), "it died there, and not elsewhere"

    def stop(self, job: JavaProcess) -> None:
        """Ends the job in order: with a savepoint, and with all that it has written committed."""
        (self._directory / "stop").touch()
        assert "the job has ended" in job.wait_until_ended(STEP_SECONDS_MAX)

    def check(self) -> None:
        """Checks that each number counts once, and that no transaction is open: it would hold readers back before the end."""
        with Admin(self._bootstrap) as admin:
            assert admin.list_transactions(states=STATES_WITHOUT_AN_END) == []
            found = admin.offsets_for_times({TopicPartition("sums", place.partition): OffsetSpec.LATEST for place in self._places})
        ends = {place.partition: offset.offset for place, offset in found.items()}

        def positions() -> dict[int, int]:
            self._take(0.05)
            return {place.partition: place.offset for place in self._reader.position(self._places)}

        eventually(positions, lambda found: found == ends)
        assert self.read == sums()
        failed_at = {file.name for file in self._directory.glob("failed-at-*")}
        assert failed_at == {f"failed-at-{number}" for number in FAILS_AT}

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
    """Returns what the job writes, if each number counts once."""
    by_key = [0] * KEY_COUNT
    found: Counter[str] = Counter()
    for number in range(NUMBER_COUNT):
        by_key[number % KEY_COUNT] += number
        found[f"{number},{by_key[number % KEY_COUNT]}"] += 1
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_sums_exactly_once_over_kills_of_one_broker(java_flink: list[str], naming: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, port=lasting_port()) as broker:
        make_topics(broker.bootstrap, replication_factor=1)
        run(java_flink, broker.bootstrap, naming, tmp_path, [broker] * 3)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_sums_exactly_once_over_kills_of_three_brokers(java_flink: list[str], naming: str, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        make_topics(cluster.bootstrap, replication_factor=3, **{"min.insync.replicas": "2"})
        run(java_flink, cluster.bootstrap, naming, tmp_path, [*cluster.nodes.values()])


def make_topics(bootstrap: str, *, replication_factor: int, **configs: str) -> None:
    """Makes the two topics."""
    new = [
        NewTopic("numbers", PARTITION_COUNT, replication_factor, configs=configs),
        NewTopic("sums", SUM_PARTITION_COUNT, replication_factor, configs=configs),
    ]
    with Admin(bootstrap) as admin:
        assert admin.create_topics(new) == {"numbers": None, "sums": None}


def run(command: list[str], bootstrap: str, naming: str, directory: Path, brokers: list[BrokerProcess]) -> None:
    """Runs the job in four JVMs, one after the other, and bounces a broker in three of them."""
    first, second, third = brokers
    with Flow(command, bootstrap, naming, directory) as flow:
        with flow.job() as job:
            flow.go_on(job, 2_000)
            bounce(first)
            flow.go_on(job, 3_000)
            flow.kill(job)
        with flow.job() as job:
            flow.go_on(job, 4_000)
            flow.die(job, "die-before-commit")
        with flow.job() as job:
            flow.go_on(job, 5_000)
            bounce(second)
            flow.go_on(job, 7_000)
            flow.die(job, "die-after-commit")
        with flow.job() as job:
            flow.go_on(job, 10_000)
            bounce(third)
            flow.go_on(job, NUMBER_COUNT)
            flow.stop(job)
        flow.check()


def bounce(broker: BrokerProcess) -> None:
    """Kills it, as by kill -9, and starts it again."""
    broker.kill()
    broker.start()
