"""Kill -9 of leaders, followers and controllers of three replicated nodes, again and again, under load.

RF 3, min.insync.replicas=2, acks=all, idempotent producers of three clients; a group that commits; a reader that reads on all the while.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import IO, Any

from aiokafka import AIOKafkaProducer
from tests.cluster.access import Access
from tests.cluster.power import PoweredCluster
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import assert_replicas_are_equal, create, leaders, wait_for_in_sync
from tests.durability.killing import SENT_PER_ROUND, assert_commits_are_kept, wait_for_group, wait_for_load
from tests.durability.load import (
    OUTSTANDING_MAX,
    PARTITION_COUNT,
    PAUSE_SECONDS,
    SESSION_TIMEOUT_MS,
    TOPIC,
    ConfluentProducer,
    History,
    HistoryThread,
    Member,
    OwnProducer,
    Place,
    begin_at_the_beginning,
    check,
    key_and_value,
    read_all,
)
from tests.waiting import eventually

from ottla.errors import KafkaError
from ottla.history import judge as of_history
from ottla.history.operations import read_history
from ottla.sync import Admin, Consumer, TopicPartition

REPLICAS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
ALL = {1, 2, 3}
KINDS = ("leader", "follower", "controller")
OFFSETS = "__consumer_offsets"
HISTORY = "history.jsonl"
"""What the clients did and saw, as ``ottla check-history`` reads it."""


PROPERTIES = {
    "log_segment_bytes": "65536",  # a kill meets closed segments, fresh ones, and ones just begun
    "min_insync_replicas": "2",
    "offsets_topic_replication_factor": "3",
    "group_min_session_timeout_ms": str(SESSION_TIMEOUT_MS),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    kills: Counter[str]
    sent: Counter[str]
    resumed_count: int  # times that a member was given a partition
    seconds: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} of a {kind}" for kind, count in self.kills.items())
        read = f"{self.sent.total()} records ({by_producer(self.sent)}), {self.resumed_count} partitions resumed by the group"
        return f"{self.kills.total()} kills ({kinds}), {read}, {self.seconds:.0f} s"


def by_producer(sent: Counter[str]) -> str:
    return ", ".join(f"{count} of {producer}" for producer, count in sent.items())


class AiokafkaProducer(HistoryThread):
    """aiokafka, idempotent, acks=all."""

    def __init__(self, history: History, name: str, access: Access) -> None:
        super().__init__(history)
        self._name = name
        self._access = access

    def run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._access.bootstrap,
            enable_idempotence=True,
            acks="all",
            linger_ms=1,
            retry_backoff_ms=20,
            request_timeout_ms=120_000,
            **self._access.aiokafka(),
        )
        await producer.start()
        open_sends: deque[tuple[int, asyncio.Future]] = deque()
        try:
            while not self.stopping.is_set():
                number = self._take_number()
                if number is not None:
                    key, value = key_and_value(self._name, number)
                    open_sends.append((number, await producer.send(TOPIC, value, key=key)))
                else:
                    await asyncio.sleep(PAUSE_SECONDS)
                while open_sends and (len(open_sends) >= OUTSTANDING_MAX or open_sends[0][1].done()):
                    await self._note(*open_sends.popleft())
            while open_sends:
                await self._note(*open_sends.popleft())
        finally:
            await producer.stop()

    def _take_number(self) -> int | None:
        """As ``History.take_number``, which would hold up the loop while nothing may be sent."""
        with self.history.changed:
            may_send = self.history.sent_count.total() < self.history.allowance
        return self.history.take_number(self._name) if may_send else None

    async def _note(self, number: int, sending: asyncio.Future) -> None:
        metadata = await sending
        self.history.acknowledge(self._name, number, Place(metadata.partition, metadata.offset))


class Reader(HistoryThread):
    """Our own consumer, without a group, at the end of the log: what it has seen must be there for ever, and each offset comes once."""

    def __init__(self, history: History, access: Access) -> None:
        super().__init__(history)
        self._access = access
        self.seen: dict[Place, bytes | None] = {}

    def run(self) -> None:
        expected: Counter[int] = Counter()
        with Consumer(self._access.bootstrap, **self._access.own()) as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITION_COUNT)])
            consumer.seek_to_beginning()
            while not self.stopping.is_set():
                for record in consumer.poll(100):
                    if record.offset != expected[record.partition]:
                        self.history.complain(f"{record.partition} {record.offset} was read where {expected[record.partition]} was due")
                    expected[record.partition] = record.offset + 1
                    self.seen[Place(record.partition, record.offset)] = record.value


class JavaProducer(HistoryThread):
    """Kafka's Java client, with its defaults: idempotent, acks=all. ``command`` runs interop.Client."""

    def __init__(self, history: History, name: str, access: Access, command: Sequence[str]) -> None:
        super().__init__(history)
        self._name = name
        java, *arguments = command
        self._command = [java, *access.java(), *arguments, "stream", access.bootstrap, TOPIC]
        self._open_count = 0
        self._is_settled = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None

    def abandon(self) -> None:
        if self._process is not None:
            self._process.kill()

    def run(self) -> None:
        with subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self._process = process
            assert process.stdin is not None
            assert process.stdout is not None
            noting = threading.Thread(target=self._note_all, args=(process.stdout,))
            noting.start()
            while not self.stopping.is_set():
                number = self.history.take_number(self._name)
                if number is None:
                    continue
                process.stdin.write(b"%s\t%s\n" % key_and_value(self._name, number))
                process.stdin.flush()
                with self._is_settled:
                    self._open_count += 1
                    self._is_settled.wait_for(lambda: self._open_count < OUTSTANDING_MAX or self.stopping.is_set())
            process.stdin.close()
            noting.join()
        assert process.returncode == 0, f"the Java client ended with {process.returncode}"
        assert not self._open_count, f"{self._open_count} records were neither acknowledged nor refused"

    def _note_all(self, lines: IO[bytes]) -> None:
        for line in lines:
            number, partition, *offset = line.decode().strip().split("\t")
            if offset:
                self.history.acknowledge(self._name, int(number), Place(int(partition), int(offset[0])))
            else:
                self.history.complain(f"{self._name} {number}: {partition}")
            with self._is_settled:
                self._open_count -= 1
                self._is_settled.notify_all()


def judged(directory: Path) -> of_history.Verdict:
    """The verdict on a run's history, which may have millions of events: a minute of work on a busy machine."""
    with (directory / HISTORY).open("rb") as lines:
        return of_history.judge(read_history(lines))


def run(
    directory: Path,
    *,
    kill_count: int,
    make: Callable[..., Any] = ClusterProcesses,
    kinds: Sequence[str] = KINDS,
    java: Sequence[str] = (),
    **properties: str,
) -> Outcome:
    """AssertionError when an acknowledged record or a confirmed commit is lost, doubled or out of order, or the replicas differ.

    ``make`` makes the cluster; a kind that is none of ``KINDS`` is what that has a method for. What a kill is, the cluster's nodes know:
    SIGKILL, a power cut, or SIGSTOP until they are started. ``java`` is the command of interop.Client, which then produces, too.
    """
    history, kills, began = History(), Counter[str](), time.monotonic()
    cluster = make(directory, **PROPERTIES | properties)
    with cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, TOPIC, REPLICAS)
        begin_at_the_beginning(admin)
        with working(history, cluster.access, java) as (producers, members, reader):
            for round_number, kind in enumerate(islice(cycle(kinds), kill_count)):
                wait_for_load(history)
                if kind not in KINDS:
                    history.allow(SENT_PER_ROUND)
                    getattr(cluster, kind)()
                    kills[kind] += 1
                    continue
                if round_number % 4 == 3:
                    wait_for_group(history, members[-1])
                    members.append(Member(history, cluster.access.bootstrap, cluster.access.librdkafka()))
                    members[-1].start()  # so the group is in motion
                victim = _victim(cluster, admin, kind)
                history.allow(SENT_PER_ROUND)
                confirmed = dict(history.confirmed)
                cluster.nodes[victim].kill()
                kills[kind] += 1
                wait_for_load(history)
                cluster.nodes[victim].start()
                eventually(partial(are_kept, cluster.bootstrap, confirmed), bool)
                if round_number % 3 < 2:  # else the next kill finds one that has not caught up
                    for index in range(PARTITION_COUNT):
                        wait_for_in_sync(admin, TOPIC, ALL, index)
                    admin.elect_leaders()
                if round_number % 4 == 3:
                    members.pop(0).join()
            log = read_to_the_end(cluster, history, producers, reader)
        judge(cluster, admin, history, reader, log, directory / HISTORY)
    assert len(history.sent_count) == len(producers), "every client has sent something"
    return Outcome(kills, history.sent_count, history.resumed_count, time.monotonic() - began)


def run_cuts_of_all(directory: Path, *, cut_count: int, java: Sequence[str] = ()) -> Outcome:
    """As ``run``; it is the power of all nodes that is cut, at once, again and again.

    With flush.messages=1 the nodes have synced what they have acknowledged, so none of it may be lost. librdkafka has one record on its
    way: of several batches it may send the second one first to a new leader, when the old one has refused the first one. Refused as out
    of order, it begins its next producer epoch, and sends again what other partitions have and have not acknowledged (its issue 4953).
    """
    history, began = History(), time.monotonic()
    cluster = PoweredCluster(directory, 3, **PROPERTIES | {"log_flush_interval_messages": "1"})
    with cluster, Admin(cluster.bootstrap) as admin:
        create(cluster, admin, TOPIC, REPLICAS)
        begin_at_the_beginning(admin)
        with working(history, cluster.access, java, librdkafka_outstanding_max=1) as (producers, _, reader):
            for _ in range(cut_count):
                wait_for_load(history)
                history.allow(SENT_PER_ROUND)
                confirmed = dict(history.confirmed)
                cluster.cut_all()
                cluster.return_all()
                eventually(partial(are_kept, cluster.bootstrap, confirmed), bool)
                for index in range(PARTITION_COUNT):
                    wait_for_in_sync(admin, TOPIC, ALL, index)
            log = read_to_the_end(cluster, history, producers, reader)
        judge(cluster, admin, history, reader, log, directory / HISTORY)
    assert len(history.sent_count) == len(producers), "every client has sent something"
    return Outcome(Counter({"whole cluster": cut_count}), history.sent_count, history.resumed_count, time.monotonic() - began)


def read_to_the_end(cluster: Any, history: History, producers: Sequence[HistoryThread], reader: Reader) -> dict[Place, tuple[bytes, bytes]]:
    """What lies in the topic once nobody sends any more, and the group and the reader have had all of it."""
    for producer in producers:
        producer.join()
    log = read_all(cluster.bootstrap)
    history.wait_for("the group reads to the end", lambda: len(history.received) >= len(log))
    eventually(lambda: len(reader.seen), lambda count: count >= len(log))
    return log


def judge(cluster: Any, admin: Admin, history: History, reader: Reader, log: dict[Place, tuple[bytes, bytes]], file: Path) -> None:
    """Nothing is lost, doubled or out of order, nothing was shown that is not there, and the replicas are equal."""
    check(history, log, file)
    assert reader.seen == {place: value for place, (_, value) in log.items()}, "what was read once is there"
    assert_commits_are_kept(cluster.bootstrap, history.confirmed)
    for topic in (TOPIC, OFFSETS):
        assert_replicas_are_equal(cluster, admin, topic)


@contextmanager
def working(
    history: History, access: Access, java: Sequence[str] = (), *, librdkafka_outstanding_max: int = OUTSTANDING_MAX
) -> Iterator[tuple[list[HistoryThread], list[Member], Reader]]:
    bootstrap, security = access.bootstrap, access.librdkafka()
    producers: list[HistoryThread] = [
        ConfluentProducer(history, "confluent", bootstrap, outstanding_max=librdkafka_outstanding_max, security=security),
        AiokafkaProducer(history, "aiokafka", access),
        OwnProducer(history, "own", bootstrap, access.own()),
        *([JavaProducer(history, "java", access, java)] if java else []),
    ]
    members, reader = [Member(history, bootstrap, security) for _ in range(2)], Reader(history, access)
    for worker in [*producers, *members, reader]:
        worker.start()
    try:
        yield producers, members, reader
    except BaseException:
        for worker in [*producers, *members, reader]:  # or they write to the next test's cluster, at the same addresses
            worker.stopping.set()
            worker.abandon()
        raise
    for worker in [*members, reader]:
        worker.join()


def _victim(cluster: Any, admin: Admin, kind: str) -> int:
    """The leader of most partitions, that of fewest, or the active controller."""
    count = Counter(leaders(admin, TOPIC))
    match kind:
        case "leader":
            return max(ALL, key=lambda node: count[node])
        case "follower":
            return min(ALL, key=lambda node: count[node])
    return eventually(lambda: cluster.controller, lambda found: found in ALL)


def are_kept(bootstrap: str, confirmed: dict[int, int]) -> bool:
    """Whether the group's coordinator can say what is committed; AssertionError when that is less than was confirmed."""
    try:
        assert_commits_are_kept(bootstrap, confirmed)
    except KafkaError:
        return False
    return True
