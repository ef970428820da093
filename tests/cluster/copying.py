"""Topics that are copied in transactions while nodes are killed and copiers are restarted; a reader of committed records beside it.

Three replicas, min.insync.replicas=2 of the topics and of what coordinators keep. At the end the copy is the original: each record once, in
order in its partition, for the reader that read all the while, too, and all replicas are equal.
"""

from __future__ import annotations

import dataclasses
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka
from tests.cluster.copier import Task
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import assert_replicas_are_equal, create, leaders, wait_for_in_sync
from tests.waiting import eventually

from ottla.sync import Admin, Consumer, KafkaError, Producer, TopicPartition

SOURCE, TARGET, GROUP = "source", "target", "copiers"
REPLICAS: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
PARTITION_COUNT: Final = len(REPLICAS)
ALL: Final = {1, 2, 3}
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
ROLES: Final = ("transactions", "group", "partition", "controller")
"""Who is killed in turn: a coordinator of transactions, the group's, the leader of a partition of the copy, the active controller."""
SENT_PER_ROUND: Final = 3_000
SHARE_COPIED_BEFORE_A_KILL: Final = 0.2
PROGRESS_SECONDS_MAX: Final = 60.0
END_SECONDS_MAX: Final = 180.0
TIMEOUT_MS: Final = 40_000
TRANSACTION_SIZE: Final = 750
ABORT_SHARE: Final = 0.1
PAUSE_SECONDS: Final = 0.02
PROPERTIES: Final = {
    "min_insync_replicas": "2",
    "log_segment_bytes": "262144",
    "offsets_topic_replication_factor": "3",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "3",
    "transaction_state_log_min_isr": "2",
}
Java = Callable[[Task], list[str]]
"""The command of Kafka's TransactionalMessageCopier for a task."""


@dataclass(slots=True)
class Outcome:
    record_count: int
    disturbances: Counter[str]
    restarts: Counter[str]
    """Copiers that were killed on purpose, those that had nothing more to do, and those that could not go on, by maker."""
    seconds: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in (self.disturbances + self.restarts).items())
        return f"{self.record_count} records copied over {kinds}, {self.seconds:.0f} s"


class CopierProcess:
    """A copier that is started again whenever it ends."""

    def __init__(self, task: Task, directory: Path, java: Java | None) -> None:
        self.task = task
        self._directory = directory
        self._command = [sys.executable, "-m", "tests.cluster.copier", json.dumps(dataclasses.asdict(task))] if java is None else java(task)
        self._process: subprocess.Popen[bytes] | None = None

    def ensure_running(self) -> str:
        """What it did, if it had to be started again."""
        done = ""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return ""
            done = f"{'failures' if code > 0 else 'ends'} of {self.task.maker}"
        with (self._directory / f"{self.task.name}.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return done

    def kill(self) -> None:
        assert self._process is not None, "it runs"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class Reader:
    """Reads what is committed, from the beginning on, in a thread: ``values`` are those of each partition, in order."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[list[int]] = [[] for _ in range(PARTITION_COUNT)]
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.values))

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(PROGRESS_SECONDS_MAX)
        assert not self._thread.is_alive(), "the reader does not end"
        if self._problem is not None:
            raise self._problem

    def _guarded(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: stop() raises it
            self._problem = error

    def _read(self) -> None:
        with Consumer(self._bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition(TARGET, index) for index in range(PARTITION_COUNT)])
            consumer.seek_to_beginning()
            while not self._is_over.is_set():
                for record in consumer.poll(100):
                    self.values[record.partition].append(int(record.value or b""))


class Copying:
    """What is copied, by whom, and how far it has come."""

    def __init__(self, bootstrap: str, copiers: Sequence[CopierProcess]) -> None:
        self.reader = Reader(bootstrap)
        self.sent_count = 0
        self.restarts: Counter[str] = Counter()
        self._copiers = copiers
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._ensure_running()
        self._keeper.start()

    def send(self, count: int) -> None:
        """So many more records are in the source: in each partition those in order whose number has its remainder."""
        with Producer(self._bootstrap) as producer:
            for number in range(self.sent_count, self.sent_count + count):
                producer.send(SOURCE, b"%d" % number, partition=number % PARTITION_COUNT)
        self.sent_count += count

    def wait_for(self, count: int, seconds_max: float) -> None:
        """The reader has so many records."""
        deadline = time.monotonic() + seconds_max
        while self.reader.count < count:
            assert time.monotonic() < deadline, f"no progress: {self.reader.count} of {count} records after {seconds_max:.0f} s"
            time.sleep(PAUSE_SECONDS)

    def kill_copier(self, number: int) -> None:
        copier = self._copiers[number % len(self._copiers)]
        with self._lock:
            copier.kill()
            copier.ensure_running()
            self.restarts[f"kills of {copier.task.maker}"] += 1

    def stop(self) -> None:
        self._is_over.set()
        self._keeper.join()
        for copier in self._copiers:
            copier.kill()
        self.reader.stop()

    def _keep(self) -> None:
        while not self._is_over.wait(0.2):
            self._ensure_running()

    def _ensure_running(self) -> None:
        with self._lock:
            for copier in self._copiers:
                if done := copier.ensure_running():
                    self.restarts[done] += 1


def run(
    directory: Path,
    *,
    makers: Sequence[str] = ("librdkafka", "ottla", "librdkafka"),
    is_group: bool = False,
    round_count: int,
    disturb: Callable[[Any, Admin, int], str] | None = None,
    make: Callable[..., Any] = ClusterProcesses,
    java: Java | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """AssertionError when a record is lost, doubled, out of order or seen early, the copy stands still, or replicas differ.

    One copier for each partition, or all in one group. ``disturb`` does something to the cluster and says what; it is all well again when
    it returns, but for what has to be fetched. Without it a node is killed, a role in turn. In two rounds of three a copier is killed, too.
    """
    began, disturbances = time.monotonic(), Counter[str]()
    cluster = make(directory, **{**PROPERTIES, **properties})
    with cluster, Admin(cluster.bootstrap) as admin:
        for topic in (SOURCE, TARGET):
            create(cluster, admin, topic, REPLICAS)
        tasks = [
            Task(
                maker,
                cluster.bootstrap,
                f"copier-{index}",
                SOURCE,
                TARGET,
                GROUP,
                -1 if is_group else index,
                TRANSACTION_SIZE,
                ABORT_SHARE,
                TIMEOUT_MS,
            )
            for index, maker in enumerate(makers)
        ]
        copiers = [CopierProcess(task, directory, java if task.maker == "java" else None) for task in tasks]
        with _copying(cluster.bootstrap, copiers) as copying:
            rng = random.Random(directory.name)
            for number in range(round_count):
                before = copying.reader.count
                copying.send(SENT_PER_ROUND)
                copying.wait_for(before + int(SENT_PER_ROUND * SHARE_COPIED_BEFORE_A_KILL), PROGRESS_SECONDS_MAX)
                if number % 3:
                    copying.kill_copier(rng.randrange(len(copiers)))
                disturbances[(disturb or _kill_one)(cluster, admin, number)] += 1
            copying.wait_for(copying.sent_count, END_SECONDS_MAX)
        judge(cluster, admin, copying)
    failures = {what: count for what, count in copying.restarts.items() if what.startswith("failures")}
    assert all(count <= 2 * round_count + 4 for count in failures.values()), f"a copier does not work: {failures}"
    return Outcome(copying.sent_count, disturbances, copying.restarts, time.monotonic() - began)


@contextmanager
def _copying(bootstrap: str, copiers: Sequence[CopierProcess]) -> Iterator[Copying]:
    copying = Copying(bootstrap, copiers)
    try:
        yield copying
    finally:
        copying.stop()


def _kill_one(cluster: Any, admin: Admin, number: int) -> str:
    """SIGKILL, or whatever the node's ``kill`` is; the others lead, and it is started again."""
    role = ROLES[number % len(ROLES)]
    victim = eventually(lambda: _who(cluster, admin, role, number), lambda found: found in ALL)
    cluster.nodes[victim].kill()
    if role != "controller":
        eventually(lambda: _who(cluster, admin, role, number), lambda found: found in ALL - {victim})
    cluster.nodes[victim].start()
    all_in_sync(admin)
    admin.elect_leaders()
    return f"kills of a node ({role})"


def kill_all(cluster: Any, admin: Admin, _: int) -> str:
    """SIGKILL of every node, one right after the other; they are started together."""
    cluster.kill_and_start_all()
    all_in_sync(admin)
    return "kills of all nodes"


def _who(cluster: Any, admin: Admin, role: str, number: int) -> int:
    """-1 while nobody has the role."""
    if role == "controller":
        return int(cluster.controller)
    topic = {"transactions": STATE, "group": OFFSETS, "partition": TARGET}[role]
    try:
        found = leaders(admin, topic)
    except KafkaError:
        return -1
    return found[number % len(found)] if found else -1


def all_in_sync(admin: Admin) -> None:
    """Every replica of everything is in sync: the next one may go."""
    for topic in (SOURCE, TARGET, STATE, OFFSETS):
        for index in range(len(leaders(admin, topic))):
            wait_for_in_sync(admin, topic, ALL, index)


def judge(cluster: Any, admin: Admin, copying: Copying) -> None:
    """The copy is the original, whoever reads it, and the replicas of all topics are equal."""
    wanted = [list(range(index, copying.sent_count, PARTITION_COUNT)) for index in range(PARTITION_COUNT)]
    for whose, found in (("the reader beside it", copying.reader.values), ("a reader at the end", read_committed(cluster.bootstrap))):
        for index in range(PARTITION_COUNT):
            doubled = {value: count for value, count in Counter(found[index]).items() if count > 1}
            missing = set(wanted[index]) - set(found[index])
            assert not doubled, f"{whose}: {len(doubled)} records of partition {index} come more than once: {list(doubled)[:10]}"
            assert not missing, f"{whose}: {len(missing)} records of partition {index} are missing: {sorted(missing)[:10]}"
            assert found[index] == wanted[index], f"{whose}: partition {index} is not in order"
    for topic in (SOURCE, TARGET, STATE, OFFSETS):
        assert_replicas_are_equal(cluster, admin, topic)


def read_committed(bootstrap: str) -> list[list[int]]:
    """What librdkafka reads, up to the ends."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "last-reader", "enable.partition.eof": True})
    consumer.assign([confluent_kafka.TopicPartition(TARGET, index, 0) for index in range(PARTITION_COUNT)])
    values: list[list[int]] = [[] for _ in range(PARTITION_COUNT)]
    ended: set[int] = set()
    while len(ended) < PARTITION_COUNT:
        message = consumer.poll(PROGRESS_SECONDS_MAX)
        assert message is not None, "the ends are not reached"
        if message.error() is None:
            values[message.partition() or 0].append(int(message.value() or b""))
        else:
            ended.add(message.partition() or 0)
    consumer.close()
    return values
