"""Short histories of clients on a cluster, recorded while its leaders are killed; and the anomalies that are planted in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import confluent_kafka

from ottla import sync
from ottla.history.operations import Operation
from ottla.sync import TopicPartition

PARTITION_COUNT = 2
RECORDS_PER_PRODUCER = 60
JOIN_SECONDS_MAX = 60.0
Plant = Callable[[list[Operation], Random], list[Operation]]


class Recording:
    """The events in the order in which they were noted. ``acknowledged_count`` says how far it is."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.operations: list[Operation] = []
        self.changed = threading.Condition()
        self.acknowledged_count = 0

    def note(self, operation: Operation) -> None:
        with self.changed:
            self.operations.append(operation)
            self.acknowledged_count += operation.f == "send" and operation.type == "ok"
            self.changed.notify_all()

    def wait_for_acknowledgements(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.acknowledged_count >= count, JOIN_SECONDS_MAX), "they never came"

    def invoke(self, process: str, number: int) -> str:
        """The value of the process's next record, which is about to be sent."""
        value = f"{process} {number}"
        self.note(Operation(process, "invoke", "send", topic=self.topic, value=value))
        return value

    def answered(self, process: str, value: str, partition: int | None, offset: int | None) -> None:
        """The send is acknowledged there; with None nobody knows."""
        if partition is None or offset is None:
            self.note(Operation(process, "info", "send", topic=self.topic, value=value))
        else:
            self.note(Operation(process, "ok", "send", self.topic, partition, value, offset))


def record(bootstrap: str, topic: str, disturb: Callable[[], None]) -> list[Operation]:
    """What three producers and two consumers of a new topic did and saw. ``disturb`` is called when a third of it is done."""
    recording = Recording(topic)
    names = ("own-a", "own-b", "librdkafka")
    with ThreadPoolExecutor() as pool:
        working = [
            pool.submit(_produce_own, recording, bootstrap, names[0]),
            pool.submit(_produce_own, recording, bootstrap, names[1]),
            pool.submit(_produce_confluent, recording, bootstrap, names[2]),
        ]
        reading = pool.submit(_read_while, recording, bootstrap, "reader", lambda: all(found.done() for found in working))
        recording.wait_for_acknowledgements(len(names) * RECORDS_PER_PRODUCER // 3)
        disturb()
        for found in [*working, reading]:
            found.result(JOIN_SECONDS_MAX)
    _read_while(recording, bootstrap, "last reader", lambda: True)
    recording.note(Operation("last reader", "ok", "drained"))
    return recording.operations


def _produce_own(recording: Recording, bootstrap: str, name: str) -> None:
    with sync.Producer(bootstrap, linger_ms=0) as producer:
        for number in range(RECORDS_PER_PRODUCER):
            value = recording.invoke(name, number)

            def note(metadata: sync.RecordMetadata | None, error: Exception | None, value: str = value) -> None:
                recording.answered(name, value, *((None, None) if metadata is None else (metadata.partition, metadata.offset)))

            sending = producer.send(recording.topic, value.encode(), partition=number % PARTITION_COUNT, on_delivery=note)
            if number % 7 == 0:  # others are acknowledged before the next one is invoked
                sending.result(JOIN_SECONDS_MAX)


def _produce_confluent(recording: Recording, bootstrap: str, name: str) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    producer = confluent_kafka.Producer(settings | {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 10})
    for number in range(RECORDS_PER_PRODUCER):
        value = recording.invoke(name, number)

        def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message, value: str = value) -> None:
            recording.answered(name, value, *((None, None) if error else (message.partition(), message.offset())))

        producer.produce(recording.topic, value.encode(), partition=number % PARTITION_COUNT, on_delivery=note)
        if number % 7 == 0:
            assert producer.flush(JOIN_SECONDS_MAX) == 0
        producer.poll(0)
    assert producer.flush(JOIN_SECONDS_MAX) == 0


def _read_while(recording: Recording, bootstrap: str, name: str, is_last: Callable[[], bool]) -> None:
    """From the beginning, and to the end that the log has when nobody writes any more."""
    partitions = [TopicPartition(recording.topic, index) for index in range(PARTITION_COUNT)]
    with sync.Consumer(bootstrap) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while True:
            is_over = is_last()
            polled = consumer.poll(100)
            records = tuple((record.topic, record.partition, record.offset, (record.value or b"").decode()) for record in polled)
            if records:
                recording.note(Operation(name, "ok", "poll", records=records))
            elif is_over and all(consumer.position(found) >= end for found, end in consumer.end_offsets(partitions).items()):
                return


# -- anomalies


@dataclass(frozen=True, slots=True)
class _At:
    """A record of a poll: the event's index, and the record's within it."""

    event: int
    index: int


Entry = tuple[str, int, int, Any]


def _polled(operations: list[Operation], process: str) -> list[_At]:
    return [
        _At(event, index)
        for event, found in enumerate(operations)
        if found.f == "poll" and found.process == process
        for index in range(len(found.records))
    ]


def _acknowledged(operations: list[Operation]) -> list[int]:
    return [event for event, found in enumerate(operations) if found.f == "send" and found.type == "ok"]


def _with_records(operations: list[Operation], change: Callable[[Entry], Entry | None]) -> list[Operation]:
    """Every record of every poll is what ``change`` makes of it; None for none."""
    changed = []
    for found in operations:
        if found.f == "poll":
            records = tuple(entry for record in found.records if (entry := change(record)) is not None)
            if records:
                changed.append(_replaced(found, records=records))
        else:
            changed.append(found)
    return changed


def _replaced(operation: Operation, **fields: Any) -> Operation:
    return Operation(**{name: getattr(operation, name) for name in Operation.__struct_fields__} | fields)


def _edited(operations: list[Operation], at: _At, *entries: Entry) -> list[Operation]:
    """The record of that poll is replaced by these."""
    found = operations[at.event]
    records = (*found.records[: at.index], *entries, *found.records[at.index + 1 :])
    new = [_replaced(found, records=records)] if records else []
    return [*operations[: at.event], *new, *operations[at.event + 1 :]]


def _entry(operations: list[Operation], at: _At) -> Entry:
    return operations[at.event].records[at.index]


def lost_write(operations: list[Operation], random: Random) -> list[Operation]:
    """A record in the middle was never polled."""
    sent = operations[random.choice([event for event in _acknowledged(operations) if operations[event].offset < RECORDS_PER_PRODUCER])]
    return _with_records(operations, lambda entry: None if entry[3] == sent.value else entry)


def unseen(operations: list[Operation], random: Random) -> list[Operation]:
    """The last record of a partition was never polled."""
    topic, partition, offset, _ = _entry(operations, _polled(operations, "last reader")[-1])
    highest = max(entry[2] for found in operations for entry in found.records if entry[1] == partition)
    assert offset <= highest, topic
    return _with_records(operations, lambda entry: None if entry[1:3] == (partition, highest) else entry)


def duplicate(operations: list[Operation], random: Random) -> list[Operation]:
    partition = _entry(operations, _polled(operations, "last reader")[-1])[1]
    others = [entry for at in _polled(operations, "reader") if (entry := _entry(operations, at))[1] == partition]
    return _longer(operations, random.choice(others)[3])


def phantom(operations: list[Operation], random: Random) -> list[Operation]:
    return _longer(operations, "of nobody 1")


def _longer(operations: list[Operation], value: Any) -> list[Operation]:
    """The last reader has another record, with this value, after the last one of a partition."""
    at = _polled(operations, "last reader")[-1]
    topic, partition, offset, _ = last = _entry(operations, at)
    return _edited(operations, at, last, (topic, partition, offset + 1, value))


def inconsistent_offsets(operations: list[Operation], random: Random) -> list[Operation]:
    """One reader was returned another value than the other one."""
    at = random.choice([at for at in _polled(operations, "reader") if _entry(operations, at)[2] >= 2])
    topic, partition, offset, _ = _entry(operations, at)
    other = next(entry[3] for found in operations for entry in found.records if entry[1] == partition and entry[2] == offset - 2)
    return _edited(operations, at, (topic, partition, offset, other))


def aborted_read(operations: list[Operation], random: Random) -> list[Operation]:
    """A send failed, and what it sent was polled."""
    event = random.choice(_acknowledged(operations))
    failed = _replaced(operations[event], type="fail", partition=-1, offset=-1)
    return [*operations[:event], failed, *operations[event + 1 :]]


def nonmonotonic_poll(operations: list[Operation], random: Random) -> list[Operation]:
    at = random.choice(_polled(operations, "reader"))
    return [*operations[: at.event + 1], operations[at.event], *operations[at.event + 1 :]]


def int_poll_skip(operations: list[Operation], random: Random) -> list[Operation]:
    """The last reader was not returned one record between two others, which the first reader was."""

    def partition(at: _At) -> int:
        records = operations[at.event].records
        return records[at.index][1] if 0 <= at.index < len(records) else -1

    inner = [
        at
        for at in _polled(operations, "last reader")
        if partition(at) == partition(_At(at.event, at.index - 1)) == partition(_At(at.event, at.index + 1))
    ]
    return _edited(operations, random.choice(inner))


def int_nonmonotonic_poll(operations: list[Operation], random: Random) -> list[Operation]:
    """Two records of one poll have changed places."""
    pairs = [
        at
        for at in _polled(operations, "last reader")
        if at.index and _entry(operations, at)[1] == operations[at.event].records[at.index - 1][1]
    ]
    at = random.choice(pairs)
    records = list(operations[at.event].records)
    records[at.index - 1 : at.index + 1] = records[at.index], records[at.index - 1]
    return [*operations[: at.event], _replaced(operations[at.event], records=tuple(records)), *operations[at.event + 1 :]]


def nonmonotonic_send(operations: list[Operation], random: Random) -> list[Operation]:
    """Two records of one process have changed places in the log."""
    return _exchanged(operations, random, lambda one, other: one.process == other.process)


def realtime_send(operations: list[Operation], random: Random) -> list[Operation]:
    """A record has the place of one that another process sent only after it was acknowledged."""
    return _exchanged(operations, random, lambda one, other: one.process != other.process)


def _exchanged(operations: list[Operation], random: Random, are_wanted: Callable[[Operation, Operation], bool]) -> list[Operation]:
    invoked = {found.value: event for event, found in enumerate(operations) if found.f == "send" and found.type == "invoke"}
    pairs = [
        (first, second)
        for first in _acknowledged(operations)
        for second in _acknowledged(operations)
        if operations[first].partition == operations[second].partition
        and first < invoked[operations[second].value]
        and are_wanted(operations[first], operations[second])
    ]
    one, other = (operations[event] for event in random.choice(pairs))
    values = {one.value: other.value, other.value: one.value}
    changed = _with_records(operations, lambda entry: (*entry[:3], values.get(entry[3], entry[3])))
    offsets = {one.value: other.offset, other.value: one.offset}
    return [
        _replaced(found, offset=offsets[found.value]) if found.f == "send" and found.type == "ok" and found.value in offsets else found
        for found in changed
    ]


def answer_lost(operations: list[Operation], random: Random) -> list[Operation]:
    """Nothing is wrong: nobody knows of some records whether they were sent, and they were."""
    lost = set(random.sample(_acknowledged(operations), 8))
    return [_replaced(found, type="info", partition=-1, offset=-1) if event in lost else found for event, found in enumerate(operations)]


PLANTED: Mapping[str, Plant] = {
    "lost-write": lost_write,
    "unseen": unseen,
    "duplicate": duplicate,
    "inconsistent-offsets": inconsistent_offsets,
    "phantom": phantom,
    "aborted-read": aborted_read,
    "nonmonotonic-poll": nonmonotonic_poll,
    "int-poll-skip": int_poll_skip,
    "int-nonmonotonic-poll": int_nonmonotonic_poll,
    "nonmonotonic-send": nonmonotonic_send,
    "realtime-send": realtime_send,
}
"""By the anomaly that ``ottla.history`` names, among others that follow from it."""
