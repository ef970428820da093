"""A program that copies one topic into another in transactions, with the offsets that it has read: ``python -m tests.cluster.copier JSON``.

It aborts some transactions of its own will, as an application does that has changed its mind. Whatever it cannot go on after ends it;
whoever started it starts it again. JSON has the fields of ``Task``.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import confluent_kafka

from ottla.sync import CommitOutcomeUnknownError, Consumer, Producer, TopicPartition, TransactionAbortableError

WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.2
SESSION_TIMEOUT_MS: Final = 6_000


@dataclass(frozen=True, slots=True)
class Task:
    """``partition`` is the only one that it reads; with -1 its group says which."""

    maker: str
    bootstrap: str
    name: str  # the transactional id
    source: str
    target: str
    group: str
    partition: int
    size: int
    abort_share: float
    timeout_ms: int


def copy_with_librdkafka(task: Task) -> None:
    """Until the process ends."""
    # When it reaches no broker it begins anew with those of bootstrap.servers, and a transaction's request may then wait for ever.
    at = {"bootstrap.servers": task.bootstrap, "metadata.recovery.strategy": "none", "log_level": 0}
    producer = confluent_kafka.Producer(
        at | {"transactional.id": task.name, "transaction.timeout.ms": task.timeout_ms, "batch.num.messages": 50, "linger.ms": 5}
    )
    consumer = confluent_kafka.Consumer(
        at
        | {
            "group.id": task.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
        }
    )
    found: list[confluent_kafka.Message] = []

    def forget(*_: Any) -> None:
        """What came of partitions that are another's now is read again by that one."""
        found.clear()

    def reset() -> None:
        places = consumer.assignment()
        for place in consumer.committed(places, WAIT_SECONDS):
            consumer.seek(confluent_kafka.TopicPartition(place.topic, place.partition, max(place.offset, 0)))

    repeated(lambda: producer.init_transactions(WAIT_SECONDS))
    if task.partition >= 0:
        [place] = consumer.committed([confluent_kafka.TopicPartition(task.source, task.partition)], WAIT_SECONDS)
        consumer.assign([confluent_kafka.TopicPartition(task.source, task.partition, max(place.offset, 0))])
    else:
        consumer.subscribe([task.source], on_assign=forget, on_revoke=forget, on_lost=forget)
    for is_aborted in choices(task):
        while (message := consumer.poll(POLL_SECONDS)) is not None and len(found) < task.size - 1:
            if message.error() is None:
                found.append(message)
        if message is not None and message.error() is None:
            found.append(message)
        if not found:
            continue
        ends = {message.partition(): (message.offset() or 0) + 1 for message in found}
        places = [confluent_kafka.TopicPartition(task.source, index or 0, end) for index, end in ends.items()]
        producer.begin_transaction()
        try:
            for message in found:
                producer.produce(task.target, message.value(), message.key(), message.partition() or 0)
                producer.poll(0)
            metadata = consumer.consumer_group_metadata()
            repeated(lambda: producer.send_offsets_to_transaction(places, metadata, WAIT_SECONDS))  # noqa: B023 - called at once
            if is_aborted:
                repeated(lambda: producer.abort_transaction(WAIT_SECONDS))
                reset()
            else:
                repeated(lambda: producer.commit_transaction(WAIT_SECONDS))
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            repeated(lambda: producer.abort_transaction(WAIT_SECONDS))
            reset()
        found.clear()


def repeated(call: Callable[[], None]) -> None:
    """librdkafka says which calls may be made again."""
    while True:
        try:
            return call()
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise


def copy_with_ottla(task: Task) -> None:
    """Until the process ends."""
    with (
        Producer(task.bootstrap, transactional_id=task.name, transaction_timeout_ms=task.timeout_ms) as producer,
        Consumer(
            task.bootstrap,
            group_id=task.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
        ) as consumer,
    ):

        def reset() -> None:
            places = consumer.assignment()
            known = consumer.committed(places)
            for place in places:
                consumer.seek(place, known.get(place, 0))

        producer.init_transactions()
        if task.partition >= 0:
            consumer.assign([TopicPartition(task.source, task.partition)])
        else:
            consumer.subscribe([task.source])
        for is_aborted in choices(task):
            records = consumer.poll(int(1000 * POLL_SECONDS), max_records=task.size)
            if not records:
                continue
            ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
            producer.begin_transaction()
            try:
                for record in records:
                    producer.send(task.target, record.value, key=record.key, partition=record.partition)
                producer.send_offsets_to_transaction(ends, consumer.group_metadata())
                if is_aborted:
                    producer.abort_transaction()
                    reset()
                else:
                    commit(producer)
            except TransactionAbortableError:
                producer.abort_transaction()
                reset()


def commit(producer: Producer) -> None:
    """Asked again until it is known what has become of it."""
    while True:
        with contextlib.suppress(CommitOutcomeUnknownError):
            return producer.commit_transaction()


def choices(task: Task) -> Iterator[bool]:
    rng = random.Random(task.name)
    while True:
        yield rng.random() < task.abort_share


MAKERS: Final = {"librdkafka": copy_with_librdkafka, "ottla": copy_with_ottla}

if __name__ == "__main__":
    asked = Task(**json.loads(sys.argv[1]))
    MAKERS[asked.maker](asked)
