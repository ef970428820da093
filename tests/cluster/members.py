"""Members of groups, one class for each client: they read what a topic gets while brokers come and go, and pass over nothing.

``auto.offset.reset`` is "latest", and each group has committed where the topic begins: a client that ever believes that nothing is
committed passes over records, and says nothing of it.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
from kafka.errors import KafkaError as KafkaPythonError
from kafka.errors import KafkaTimeoutError

from ottla import sync
from ottla.errors import KafkaError

SESSION_MS: Final = 2_000
HEARTBEAT_MS: Final = 200
COMMIT_MS: Final = 100
POLL_SECONDS: Final = 0.1
JOIN_SECONDS_MAX: Final = 60.0
Place = tuple[int, int]


class Readings:
    """What the members of one group have read: partition and offset, and how often."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[Place] = Counter()
        self.problems: list[str] = []

    def add(self, places: Iterable[Place]) -> None:
        with self._lock:
            self.counts.update(places)

    def complain(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)


class Member(ABC):
    """Reads in a thread of its own until it is asked to stop, and commits by itself."""

    def __init__(self, bootstrap: str, topic: str, readings: Readings) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.readings = readings
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    @property
    def group(self) -> str:
        return f"readers-{type(self).__name__}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It leaves the group."""
        self.stopping.set()
        self._thread.join(JOIN_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.group} has a member that does not end"

    def _guarded(self) -> None:
        try:
            self.read()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the judge looks at it
            self.readings.complain("".join(traceback.format_exception(error)))

    @abstractmethod
    def read(self) -> None:
        """Reads until ``stopping``."""


class OfConfluent(Member):
    """librdkafka."""

    def read(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "latest",
                "auto.commit.interval.ms": COMMIT_MS,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "reconnect.backoff.max.ms": 100,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic])
        while not self.stopping.is_set():
            self.readings.add(_place(message) for message in consumer.consume(500, POLL_SECONDS) if message.error() is None)
        consumer.close()


def _place(message: Any) -> Place:
    return message.partition(), message.offset()


class OfKafkaPython(Member):
    """kafka-python."""

    def read(self) -> None:
        consumer = self._begun()
        while not self.stopping.is_set():
            try:
                found = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
            except KafkaPythonError as error:
                if not error.retriable:
                    raise
                continue
            self.readings.add((record.partition, record.offset) for records in found.values() for record in records)
        consumer.close()

    def _begun(self) -> Any:
        """It gives up at once where the broker that it asks first stands still."""
        while not self.stopping.is_set():
            try:
                return self._new()
            except KafkaTimeoutError:
                continue
        raise KafkaTimeoutError

    def _new(self) -> Any:
        return kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            auto_offset_reset="latest",
            auto_commit_interval_ms=COMMIT_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            reconnect_backoff_max_ms=100,
        )


class OfAiokafka(Member):
    """aiokafka."""

    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="latest",
            auto_commit_interval_ms=COMMIT_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        try:
            while not self.stopping.is_set():
                found = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
                self.readings.add((record.partition, record.offset) for records in found.values() for record in records)
        finally:
            await consumer.stop()


class OfOurs(Member):
    """ottla's client."""

    def read(self) -> None:
        options: dict[str, Any] = {
            "auto_offset_reset": "latest",
            "auto_commit_interval_ms": COMMIT_MS,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        with sync.Consumer(self.bootstrap, group_id=self.group, **options) as consumer:
            consumer.subscribe([self.topic])
            while not self.stopping.is_set():
                try:
                    self.readings.add((record.partition, record.offset) for record in consumer.poll(int(POLL_SECONDS * 1000)))
                except KafkaError as error:
                    if not error.is_retriable:
                        raise


CLIENTS: Final[tuple[type[Member], ...]] = (OfConfluent, OfKafkaPython, OfAiokafka, OfOurs)
