"""Members of groups, one class for each client: they read what a topic gets while brokers come and go, and pass over nothing.

``auto.offset.reset`` is "latest", and each group has committed where the topic begins: a client that ever believes that nothing is
committed passes over records, and says nothing of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, Final

import aiokafka
import confluent_kafka
import kafka
from kafka.errors import KafkaError as KafkaPythonError
from kafka.errors import KafkaTimeoutError
from tests.worker_thread import WorkerThread

from ottla import sync
from ottla.errors import KafkaError

SESSION_MS: Final = 2_000
HEARTBEAT_MS: Final = 200
COMMIT_MS: Final = 100
POLL_SECONDS: Final = 0.1
Place = tuple[int, int]


class Readings:
    """What the members of one group have read, by partition and offset."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Place] = Counter()
        self.problems: list[str] = []

    @property
    def places(self) -> set[Place]:
        """All that was read."""
        with self._lock:
            return set(self._counts)

    @property
    def doubled(self) -> int:
        """Readings of what had been read before."""
        with self._lock:
            return self._counts.total() - len(self._counts)

    def add(self, places: Iterable[Place]) -> None:
        with self._lock:
            self._counts.update(places)

    def complain(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)


class Member(WorkerThread):
    """Reads until it is asked to stop, commits by itself, and leaves the group then."""

    def __init__(self, bootstrap: str, topic: str, readings: Readings) -> None:
        super().__init__(readings.complain)
        self.bootstrap = bootstrap
        self.topic = topic
        self.readings = readings

    @property
    def group(self) -> str:
        return f"readers-{type(self).__name__}"


class OfConfluent(Member):
    """librdkafka."""

    SETTINGS: ClassVar[dict[str, Any]] = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "latest",
                "auto.commit.interval.ms": COMMIT_MS,
                "reconnect.backoff.max.ms": 100,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
            | self.SETTINGS
        )
        consumer.subscribe([self.topic])
        while not self.stopping.is_set():
            self.readings.add(_place(message) for message in consumer.consume(500, POLL_SECONDS) if message.error() is None)
        consumer.close()


def _place(message: Any) -> Place:
    return message.partition(), message.offset()


class OfConfluentByHeartbeats(OfConfluent):
    """librdkafka, by the consumer protocol (KIP-848): the broker has the times."""

    SETTINGS: ClassVar[dict[str, Any]] = {"group.protocol": "consumer"}


class OfKafkaPython(Member):
    """kafka-python."""

    def run(self) -> None:
        consumer = self._begun()
        if consumer is None:
            return
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
        """None when it is asked to stop before. It gives up at once where the broker that it asks first stands still."""
        while not self.stopping.is_set():
            try:
                return self._new()
            except KafkaTimeoutError:
                continue
        return None

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

    def run(self) -> None:
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
            request_timeout_ms=10_000,  # it waits so long for each of several requests before it ends
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

    SETTINGS: ClassVar[dict[str, Any]] = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}

    def run(self) -> None:
        options: dict[str, Any] = {"auto_offset_reset": "latest", "auto_commit_interval_ms": COMMIT_MS} | self.SETTINGS
        with sync.Consumer(self.bootstrap, group_id=self.group, **options) as consumer:
            consumer.subscribe([self.topic])
            while not self.stopping.is_set():
                try:
                    self.readings.add((record.partition, record.offset) for record in consumer.poll(int(POLL_SECONDS * 1000)))
                except KafkaError as error:
                    if not error.is_retriable:
                        raise


class OfOursByHeartbeats(OfOurs):
    """ottla's client, by the consumer protocol (KIP-848)."""

    SETTINGS: ClassVar[dict[str, Any]] = {"group_protocol": "consumer"}


CLIENTS: Final[tuple[type[Member], ...]] = (OfConfluent, OfKafkaPython, OfAiokafka, OfOurs)
BY_HEARTBEATS: Final[tuple[type[Member], ...]] = (OfConfluentByHeartbeats, OfOursByHeartbeats)
