"""A producer that writes all the time, with acks=all: how long the cluster takes to acknowledge, also while it is disturbed.

It writes one small record after the other to the partitions of a topic of its own, which retention keeps short.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from ottla.aio import Admin, NewTopic, Producer
from ottla.errors import ErrorCode, KafkaError, OttlaError

TOPIC: Final = "ottla-console-probe"
PARTITIONS: Final = 6
REPLICAS_MAX: Final = 3
INTERVAL_SECONDS: Final = 0.05
DOTS_MAX: Final = 2_400
RETRY_SECONDS: Final = 1.0
DELIVERY_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Dot:
    """A record of the probe: when it was sent, and how long its acknowledgement took; ``error`` when it was refused."""

    at: float
    ms: float
    partition: int
    error: str | None = None


class Probe:
    """The probe of one cluster. ``dots`` are its newest records; ``dot_count`` is how many there were."""

    def __init__(self, bootstrap: str, settings: dict[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._sent: set[asyncio.Task[None]] = set()
        self.dots: deque[Dot] = deque(maxlen=DOTS_MAX)
        self.dot_count = 0

    async def run(self) -> None:
        """Writes until it is cancelled."""
        while not await self._has_topic():
            await asyncio.sleep(RETRY_SECONDS)
        settings = self._settings | {"acks": "all", "linger_ms": 0, "delivery_timeout_ms": DELIVERY_TIMEOUT_MS}
        async with Producer(self._bootstrap, **settings) as producer:
            number = 0
            while True:
                task = asyncio.create_task(self._send(producer, number % PARTITIONS))
                self._sent.add(task)
                task.add_done_callback(self._sent.discard)
                number += 1
                await asyncio.sleep(INTERVAL_SECONDS)

    async def _has_topic(self) -> bool:
        async with Admin(self._bootstrap, **self._settings) as admin:
            try:
                count = len((await admin.describe_cluster()).nodes)
                replicas = min(REPLICAS_MAX, count)
                configs = {"retention.ms": "600000", "min.insync.replicas": str(max(1, replicas - 1))}
                [made] = (await admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas, configs)])).values()
            except OttlaError:
                return False
            return made is None or made.code == ErrorCode.TOPIC_ALREADY_EXISTS

    async def _send(self, producer: Any, partition: int) -> None:
        at, began, error = time.time(), time.monotonic(), None
        try:
            await producer.send_and_wait(TOPIC, b"probe", partition=partition)
        except KafkaError as refused:
            error = str(refused)
        self.dots.append(Dot(at, (time.monotonic() - began) * 1000, partition, error))
        self.dot_count += 1
