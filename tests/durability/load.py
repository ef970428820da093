"""Load that goes on while a broker is killed, and what must hold when it is over.

Producers note every acknowledgement, a group's members note what they got, what they tried to commit and what was
confirmed. ``check`` has all of it judged (``ottla.history``), together with the log as a reader without a group sees it.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from tests.worker_thread import JOIN_SECONDS_MAX, WorkerThread

from ottla import sync
from ottla.history.judge import judge
from ottla.history.operations import Operation, write_history

TOPIC, GROUP = "events", "readers"
PARTITION_COUNT = 3
KEYS_PER_PRODUCER = 10
OUTSTANDING_MAX = 500
COMMIT_EVERY = 100
# librdkafka's "rebootstrap" gives up the only broker when that dies with a member's first Metadata request on its way, and the
# member then waits for topic.metadata.refresh.interval.ms, five minutes.
QUIET = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "metadata.recovery.strategy": "none",
}
PAUSE_SECONDS = 0.01
Settings = Mapping[str, Any]
PLAIN_TEXT: Settings = MappingProxyType({})
SESSION_TIMEOUT_MS = 2_000  # a member whose answer was lost with the broker is a ghost for so long


class Place(NamedTuple):
    partition: int
    offset: int


def place_of(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Place(partition, offset)


class History:
    """What all threads have seen. ``changed`` is notified of each step, and held while one is noted in ``operations``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.operations: list[Operation] = []
        self.allowance = 0  # so many records may be sent in all
        self.sent_count: Counter[str] = Counter()
        self.acknowledged: dict[tuple[str, int], Place] = {}  # (producer, number) -> where the broker said it is
        self.implied: list[tuple[str, int]] = []  # acknowledged, nobody said where
        self.received: dict[Place, bytes] = {}
        self.attempted: dict[int, int] = defaultdict(int)  # the furthest commit that was tried; a lost answer may hide that it took effect
        self.confirmed: dict[int, int] = defaultdict(int)  # the furthest commit that the broker confirmed
        self.resumed_count = 0
        self.problems: list[str] = []

    def allow(self, count: int) -> None:
        """The producers may send ``count`` more records."""
        with self.changed:
            self.allowance = sum(self.sent_count.values()) + count
            self.changed.notify_all()

    def take_number(self, producer: str) -> int | None:
        """The number of the producer's next record, which counts as sent; None when nothing may be sent for now."""
        with self.changed:
            if sum(self.sent_count.values()) >= self.allowance:
                self.changed.wait(PAUSE_SECONDS)
                return None
            number = self.sent_count[producer]
            self.sent_count[producer] += 1
            self.operations.append(Operation(producer, "invoke", "send", topic=TOPIC, value=f"{producer} {number}"))
            return number

    def acknowledge(self, producer: str, number: int, place: Place) -> None:
        with self.changed:
            self.acknowledged[producer, number] = place
            value = f"{producer} {number}"
            self.operations.append(Operation(producer, "ok", "send", TOPIC, place.partition, value, place.offset))
            self.changed.notify_all()

    def imply(self, producer: str, number: int) -> None:
        """A later record's acknowledgement is this one's, too: librdkafka says so when its own is lost, and not where the record is."""
        with self.changed:
            self.implied.append((producer, number))

    def receive(self, member: str, place: Place, value: bytes, *, is_first: bool) -> None:
        """``is_first``: the member was just given the partition, so this must be where the group stood."""
        with self.changed:
            if is_first:
                found = place.offset or -1  # a group that has committed nothing begins at the beginning
                self.operations.append(Operation(member, "ok", "committed", group=GROUP, offsets=((TOPIC, place.partition, found),)))
                self.operations.append(Operation(member, "ok", "assign", partitions=((TOPIC, place.partition),)))
                self.resumed_count += 1
                if not self.confirmed[place.partition] <= place.offset <= self.attempted[place.partition]:
                    self.problems.append(
                        f"{place} is where a member resumed; confirmed were {dict(self.confirmed)}, tried {dict(self.attempted)}"
                    )
            self.operations.append(Operation(member, "ok", "poll", records=((TOPIC, *place, value.decode()),)))
            if self.received.setdefault(place, value) != value:
                self.problems.append(f"{place} was {self.received[place]!r} and then {value!r}")
            self.changed.notify_all()

    def commit(self, member: str, kind: Literal["invoke", "ok", "info"], offsets: dict[int, int]) -> None:
        """``invoke``: it is tried. ``ok``: it is confirmed. ``info``: nobody knows."""
        with self.changed:
            entries = tuple((TOPIC, *entry) for entry in offsets.items())
            self.operations.append(Operation(member, kind, "commit", group=GROUP, offsets=entries))
            for noted in [self.attempted] * (kind == "invoke") + [self.confirmed] * (kind == "ok"):
                for partition, offset in offsets.items():
                    noted[partition] = max(noted[partition], offset)

    def complain(self, problem: str) -> None:
        with self.changed:
            self.problems.append(problem)
            self.changed.notify_all()

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: is_so() or self.problems, JOIN_SECONDS_MAX), f"never came: {what}"
            assert not self.problems, self.problems


class HistoryThread(WorkerThread):
    """Notes what it does in the history."""

    def __init__(self, history: History) -> None:
        super().__init__(history.complain)
        self.history = history


def key_and_value(producer: str, number: int) -> tuple[bytes, bytes]:
    return b"%s-%d" % (producer.encode(), number % KEYS_PER_PRODUCER), b"%s %d" % (producer.encode(), number)


class ConfluentProducer(HistoryThread):
    """librdkafka, idempotent, acks=all."""

    def __init__(
        self, history: History, name: str, bootstrap: str, *, outstanding_max: int = OUTSTANDING_MAX, security: Settings = PLAIN_TEXT
    ) -> None:
        super().__init__(history)
        self._name = name
        self._outstanding_max = outstanding_max
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 1}
        self._producer = confluent_kafka.Producer({**settings, **QUIET, **security})

    def run(self) -> None:
        while not self.stopping.is_set():
            number = self.history.take_number(self._name)
            if number is not None:
                key, value = key_and_value(self._name, number)
                self._producer.produce(TOPIC, value, key, on_delivery=self._noting(number))
            self._producer.poll(0)
            while len(self._producer) >= self._outstanding_max:
                self._producer.poll(PAUSE_SECONDS)
        assert self._producer.flush(JOIN_SECONDS_MAX) == 0

    def _noting(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise AssertionError(f"{self._name} {number}: {error}")
            if message.offset() is None:
                self.history.imply(self._name, number)
            else:
                self.history.acknowledge(self._name, number, place_of(message))

        return on_delivery


class OwnProducer(HistoryThread):
    """ottla's client, with its defaults: idempotent, acks=all."""

    def __init__(self, history: History, name: str, bootstrap: str, security: Settings = PLAIN_TEXT) -> None:
        super().__init__(history)
        self._name = name
        self._bootstrap = bootstrap
        self._security = security

    def run(self) -> None:
        open_sends: deque[tuple[int, Future[sync.RecordMetadata]]] = deque()
        with sync.Producer(self._bootstrap, **self._security) as producer:
            while not self.stopping.is_set():
                number = self.history.take_number(self._name)
                if number is not None:
                    key, value = key_and_value(self._name, number)
                    open_sends.append((number, producer.send(TOPIC, value, key=key)))
                while open_sends and (len(open_sends) >= OUTSTANDING_MAX or open_sends[0][1].done()):
                    self._note(*open_sends.popleft())
            while open_sends:
                self._note(*open_sends.popleft())

    def _note(self, number: int, sending: Future[sync.RecordMetadata]) -> None:
        metadata = sending.result(JOIN_SECONDS_MAX)
        self.history.acknowledge(self._name, number, Place(metadata.partition, metadata.offset))


_member_numbers = itertools.count(1)


class Member(HistoryThread):
    """librdkafka in the group. It commits what it has handled, and stops without a last commit."""

    def __init__(self, history: History, bootstrap: str, security: Settings = PLAIN_TEXT) -> None:
        super().__init__(history)
        self._name = f"member-{next(_member_numbers)}"
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "fetch.wait.max.ms": 50,
                **QUIET,
                **security,
            }
        )
        self._next: dict[int, int] = {}  # partition -> the offset after the last record handled; none before the first one
        self.has_read = False

    def run(self) -> None:
        consumer = self._consumer
        consumer.subscribe([TOPIC], on_assign=self._on_change, on_revoke=self._on_change, on_lost=self._on_change)
        handled = 0
        while not self.stopping.is_set():
            message = consumer.poll(0.05)  # one by one: many may mix what came before a rebalance with what came after it
            if message is None or message.error() is not None:
                continue  # the broker is away
            place, value = place_of(message), message.value()
            assert value is not None
            expected = self._next.get(place.partition)
            if expected not in (None, place.offset):
                self.history.complain(f"{place} was read where offset {expected} was due")
            self.history.receive(self._name, place, value, is_first=expected is None)
            self._next[place.partition] = place.offset + 1
            self.has_read = True
            handled += 1
            if handled >= COMMIT_EVERY:
                handled = 0
                self._commit()
        self._leave()

    def _leave(self) -> None:
        """The partitions are given back first, while the group's thread in librdkafka is there to be asked about it.

        From within ``close`` the callback may come when that thread takes no requests any more; it then waits forever, with the
        interpreter's lock held (librdkafka 2.16.0, ``rd_kafka_rebalance_protocol``).
        """
        self._consumer.unsubscribe()
        while self._consumer.assignment():
            self._consumer.poll(PAUSE_SECONDS)
        self._consumer.close()

    def _on_change(self, _consumer: confluent_kafka.Consumer, _partitions: list[TopicPartition]) -> None:
        self._next.clear()

    def _commit(self) -> None:
        offsets = dict(self._next)
        self.history.commit(self._name, "invoke", offsets)
        try:
            self._consumer.commit(offsets=[TopicPartition(TOPIC, *entry) for entry in offsets.items()], asynchronous=False)
        except KafkaException:
            self.history.commit(self._name, "info", offsets)  # not confirmed
        else:
            self.history.commit(self._name, "ok", offsets)


def begin_at_the_beginning(admin: sync.Admin) -> None:
    """The group has an offset of every partition, so that no member asks where one begins.

    librdkafka 2.16 begins to fetch a partition that it was given and has lost again, when the answer to that question comes late, and hands
    out a record of it when it gets the partition once more.
    """
    admin.set_offsets(GROUP, {sync.TopicPartition(TOPIC, index): 0 for index in range(PARTITION_COUNT)})


def read_all(bootstrap: str) -> dict[Place, tuple[bytes, bytes]]:
    """Key and value of every record of the topic, by a reader without a group."""
    partitions = [sync.TopicPartition(TOPIC, index) for index in range(PARTITION_COUNT)]
    found: dict[Place, tuple[bytes, bytes]] = {}
    with sync.Consumer(bootstrap) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records = consumer.poll(10_000)
            assert records, "the log does not reach the end offset that it reports"
            for record in records:
                assert record.key is not None
                assert record.value is not None
                found[Place(record.partition, record.offset)] = (record.key, record.value)
    return found


def check(history: History, log: dict[Place, tuple[bytes, bytes]], file: Path | None = None) -> None:
    """Nothing acknowledged is lost, nothing is there twice, every producer's records are in order, and the group has seen all.

    The complete history is written to the file, for ``ottla check-history``.
    """
    places = {value.decode(): place for place, (_, value) in log.items()}
    for producer, number in history.implied:
        assert f"{producer} {number}" in places, f"{producer} {number} was acknowledged by way of a later one, and is lost"
        history.acknowledge(producer, number, places[f"{producer} {number}"])
    last = tuple((TOPIC, *place, value.decode()) for place, (_, value) in sorted(log.items()))
    history.operations += [Operation("last reader", "ok", "poll", records=last), Operation("last reader", "ok", "drained")]
    if file is not None:
        with file.open("wb") as lines:
            lines.writelines(write_history(history.operations))
    verdict = judge(history.operations)
    assert not verdict.anomalies, verdict.anomalies[:10]
    assert not verdict.is_unknown, "something was sent and read"
    assert len(log) == sum(history.sent_count.values()) == len(history.acknowledged), (
        "what was sent, and all of it was acknowledged, is there"
    )
    assert history.received == {place: value for place, (_, value) in log.items()}
