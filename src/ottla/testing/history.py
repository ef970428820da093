"""What the clients of a test did and saw, and what of it cannot be: judged as ``ottla check-history`` judges.

::

    producer = history.watch(confluent_kafka.Producer({"bootstrap.servers": b.bootstrap}))
    consumer = history.watch(AIOKafkaConsumer(topic, bootstrap_servers=b.bootstrap))

A watched client is used as before. At the end each topic that was sent to is read to its end; what was acknowledged and is not there is
lost, what is there twice is doubled. Records are distinguished by key and value: a test sends no two that are equal.
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Unpack, cast

from ottla.client.options import ClusterOptions
from ottla.history.judge import KINDS, Anomaly, Verdict, judge
from ottla.history.operations import Operation, write_history
from ottla.sync import Admin, Consumer
from ottla.testing.records import Seen, record_text
from ottla.testing.watched import stand_in
from ottla.testing.whereabouts import Address, addresses_of, elsewhere
from ottla.types import TopicPartition

C = TypeVar("C")
READER: Final = "the log"
READ_SECONDS_MAX: Final = 30.0
SHOWN_MAX: Final = 10


class History:
    """The history of one test: what its clients did and saw.

    ``bootstrap`` is where its topics are read at the end, with these settings of a client; without it they are not.

    Each watched client is a ``process``: a name in the texts of failures, used for no other client, which does one thing after the other.
    A record is its ``value``, a text that is sent once in its topic; a watched client makes it of key and value. ``transaction`` is a
    name of the test's choice for one transaction, empty for a send without one; its end is recorded with the same name.
    """

    def __init__(self, bootstrap: str = "", **settings: Unpack[ClusterOptions]) -> None:
        self.bootstrap = bootstrap
        self._settings = settings
        self._operations: list[Operation | tuple[Operation, list[Seen]]] = []
        self._allowed: set[str] = set()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._addresses: dict[str, frozenset[Address]] = {}  # that watched clients were made with, where they say so
        self._absent: set[str] = set()  # topics that were sent to, and are not at ``bootstrap``

    def watch(self, client: C, name: str = "") -> C:
        """Returns the client, recording sends and polls: of confluent-kafka, kafka-python, aiokafka, ``ottla.aio`` or ``ottla.sync``.

        What is returned has the methods of ``client``, and records in the name ``name``, which failures have for it: "client 1" and so on
        without one. A client of another broker or cluster than the history's has a history of its own.
        """
        name = name or f"client {next(self._numbers)}"
        watched = stand_in(self, client, name)
        self._addresses[name] = addresses_of(client)
        return cast("C", watched)

    def allow(self, *kinds: str) -> None:
        """Allows anomalies of these kinds: ``duplicate``, where a producer may send twice. docs/history.md has all kinds."""
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is no kind of anomaly; there are {', '.join(KINDS)}")
        self._allowed.update(kinds)

    # What happened; watched clients call these, and so may a test

    def sending(self, process: str, topic: str, value: str, *, transaction: str = "") -> None:
        """Records that the send of a record has started."""
        self._take(Operation(process, "invoke", "send", topic=topic, value=value, transaction=transaction))

    def sent(self, process: str, topic: str, value: str, *, partition: int, offset: int, transaction: str = "") -> None:
        """Records that the send was acknowledged. A send without this may be stored or not."""
        self._take(Operation(process, "ok", "send", topic=topic, value=value, partition=partition, offset=offset, transaction=transaction))

    def polled(self, process: str, records: Sequence[Seen], *, read_uncommitted: bool = False) -> None:
        """Records that a consumer got these records, each a ``Seen`` of ``ottla.testing``.

        ``read_uncommitted``: it may get records of transactions that are open or aborted.
        """
        if records:
            self._take((Operation(process, "ok", "poll", read_uncommitted=read_uncommitted), list(records)))

    def assigned(self, process: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Records that the consumer may continue anywhere in these partitions: after an assignment, or a seek."""
        self._take(Operation(process, "ok", "assign", partitions=tuple(partitions)))

    def ended(self, process: str, transaction: str, kind: Literal["invoke", "ok"], *, is_commit: bool) -> None:
        """Records that the end of a transaction was asked for (``kind`` is invoke), or is done (ok): a commit, or an abort."""
        self._take(Operation(process, kind, "commit_transaction" if is_commit else "abort_transaction", transaction=transaction))

    def _take(self, event: Operation | tuple[Operation, list[Seen]]) -> None:
        with self._lock:
            self._operations.append(event)

    # What follows from it

    @property
    def operations(self) -> list[Operation]:
        """All events so far, in the format of docs/history.md."""
        with self._lock:
            events = list(self._operations)
        known: dict[tuple[str, int, int], Any] = {}
        for event in events:
            if isinstance(event, tuple):
                known |= {(seen.topic, seen.partition, seen.offset): seen.value for seen in event[1] if seen.value is not None}
            elif event.f == "send" and event.type == "ok":
                known.setdefault((event.topic, event.partition, event.offset), event.value)
        return [event if isinstance(event, Operation) else _with_values(*event, known) for event in events]

    def write(self, path: str | Path) -> None:
        """Writes a file for ``ottla check-history``. The reads of the whole log, which it needs, are in it once ``check`` was called."""
        with open(path, "wb") as out:
            out.writelines(write_history(self.operations))

    def judge(self) -> Verdict:
        """Returns the verdict over all that happened; reads the topics to their ends before."""
        if self.bootstrap:
            self._read_all()
        return judge(self.operations)

    def check(self) -> None:
        """Raises AssertionError with what is lost, doubled or otherwise wrong."""
        if not self._operations:
            return
        found = [anomaly for anomaly in self.judge().anomalies if anomaly.kind not in self._allowed]
        if found:
            raise AssertionError(
                "\n".join([_text(found), *self._sent_again(found), *self._sent_elsewhere()])
            )  # pytest would add to the text of an assert

    def warn_if_empty(self, file: str, line: int) -> None:
        """Warns, at this line, where no client did anything that is recorded: nothing was judged."""
        if not self._operations:
            text = "the history has judged nothing: no client was watched, as in history.watch(Producer(...))"
            warnings.warn_explicit(text, UserWarning, file, line)

    def _sent_again(self, found: Iterable[Anomaly]) -> Iterator[str]:
        """Yields a line for a record that the test itself sent more than once to a topic that has an anomaly."""
        topics = {anomaly.partition.rpartition("-")[0] for anomaly in found}
        sends = Counter((event.topic, event.value) for event in self.operations if event.f == "send" and event.type == "invoke")
        again = [(topic, value, count) for (topic, value), count in sends.items() if count > 1 and topic in topics]
        for topic, value, count in again[:1]:
            yield f"the test itself sent {value!r} {count} times to {topic}: key and value identify a record, so give each a number"

    def _sent_elsewhere(self) -> Iterator[str]:
        """Yields a line for each client that talks to another broker or cluster, and each topic that the history's does not have."""
        if not self.bootstrap:
            return
        with Admin(self.bootstrap, **self._settings) as admin:
            nodes = admin.describe_cluster().nodes
        yield from elsewhere(self._addresses, [(node.host, node.port) for node in nodes], self.bootstrap)
        for topic in sorted(self._absent):
            senders = sorted({str(event.process) for event in self.operations if event.f == "send" and event.topic == topic})
            text = f"topic {topic!r}, to which {' and '.join(senders)} sent, does not exist at {self.bootstrap}"
            yield f"{text}, where this history reads: it was deleted, or the client talks to another broker or cluster: make it a History"

    def _read_all(self) -> None:
        with self._lock:
            topics = {event.topic for event in self._operations if isinstance(event, Operation) and event.f == "send"}
        if not topics:
            return
        with Admin(self.bootstrap, **self._settings) as admin:
            found = admin.list_topics()
        self._absent = topics - found.keys()
        partitions = [TopicPartition(topic, index) for topic in sorted(topics) if topic in found for index in found[topic].partitions]
        for seen in _read(self.bootstrap, partitions, self._settings):
            self.assigned(READER, [(seen.topic, seen.partition)])  # what transactions have aborted it passes over
            self.polled(READER, [seen])
        self._take(Operation(READER, "ok", "drained"))


def _read(bootstrap: str, partitions: Sequence[TopicPartition], settings: ClusterOptions) -> Iterator[Seen]:
    """Yields what is in the log. AssertionError when it cannot be read in half a minute."""
    if not partitions:
        return
    deadline = time.monotonic() + READ_SECONDS_MAX
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed", **settings) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions, timeout_ms=int(READ_SECONDS_MAX * 1000))
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(100):
                yield Seen(record.topic, record.partition, record.offset, record_text(record.key, record.value))
            if time.monotonic() > deadline:
                left = [str(partition) for partition, end in ends.items() if consumer.position(partition) < end]
                raise AssertionError(
                    f"the history cannot be judged: {', '.join(left)} could not be read to the end in {READ_SECONDS_MAX:.0f} s"
                )


def _with_values(operation: Operation, records: list[Seen], known: dict[tuple[str, int, int], Any]) -> Operation:
    """Fills in records that a deserializer hid by what is at their offsets."""
    full = tuple((seen.topic, seen.partition, seen.offset, seen.value or known.get(seen[:3])) for seen in records)
    return Operation(operation.process, "ok", "poll", records=full, read_uncommitted=operation.read_uncommitted)


def _text(found: list[Anomaly]) -> str:
    lines = [f"  {anomaly.kind} in {anomaly.partition}: {anomaly.text}" for anomaly in found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        lines.append(f"  and {len(found) - SHOWN_MAX} more")
    return "\n".join([f"the history has {len(found)} anomal{'y' if len(found) == 1 else 'ies'}:", *lines])
