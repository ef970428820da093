"""The sending half: flights into their topic, in a thread of its own.

The sender keeps a bounded number of flights ahead of the reader, where the reader's position is known. A broker takes several times as
many records as the pipeline; without the bound the latency of a result would be the age of a backlog.

With ``--keep``, what an earlier run sent is not sent again. Which flights those were is known from the log alone: a flight's
partition follows from its key, an idempotent producer leaves no gap in a partition, so the first n flights of a partition whose
log ends at n are there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla import aio
from ottla.client.partitioner import partition_for_key
from ottla.errors import ErrorCode
from ottla.sync import Admin, NewTopic, Producer
from ottla.types import LATEST_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from ottla.spark.demo.flights import Flights
    from ottla.sync import RecordMetadata

FLIGHTS: Final = "flights"
AIRLINES: Final = "airlines"
DELAYS: Final = "delays"
TYPED: Final = "typed"
UNREADABLE: Final = "unreadable"
LONGEST: Final = "longest"
TOPICS: Final = {FLIGHTS: 6, AIRLINES: 1, DELAYS: 3, TYPED: 1, UNREADABLE: 1, LONGEST: 1}
TYPED_WRONG: Final = (
    b"year,month,day,dep_time,sched_dep_time,dep_delay",
    b'{"carrier":"UA","flight":"fifteen forty-five","origin":"EWR"}',
    b'{"carrier":"AA","flight":1141,"origin":"JFK"',
)
"""Records of flights that no program reads, typed by hand; the file itself has none."""
REPLICATION_FACTOR: Final = 3
MIN_IN_SYNC: Final = 2
"""A record is acknowledged when two brokers have it, so that the death of one loses nothing and stops nothing."""
CHUNK: Final = 1_000
CHUNKS_UNDER_WAY_MAX: Final = 10
PAUSE_S: Final = 0.01


def create_topics(bootstrap: str, *, replication_factor: int = REPLICATION_FACTOR) -> None:
    """Creates the topics."""
    with Admin(bootstrap) as admin:
        configs = {"min.insync.replicas": str(min(MIN_IN_SYNC, replication_factor))}
        results = admin.create_topics([NewTopic(name, count, replication_factor, configs) for name, count in TOPICS.items()])
    for error in results.values():
        if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error


def end_offsets(bootstrap: str, topic: str) -> list[int]:
    """Returns how many records each partition has."""
    with Admin(bootstrap) as admin:
        partitions = [TopicPartition(topic, index) for index in range(TOPICS[topic])]
        found = admin.offsets_for_times(dict.fromkeys(partitions, LATEST_TIMESTAMP))
    return [found[partition][0] for partition in partitions]


def missing(keys: Iterable[bytes], stored: list[int]) -> Iterator[int]:
    """Yields indexes of the records, of these keys in this order, that partitions with so many records do not have yet."""
    left = list(stored)
    partitions: dict[bytes, int] = {}
    for index, key in enumerate(keys):
        partition = partitions.get(key)
        if partition is None:
            partition = partitions[key] = partition_for_key(key, len(stored))
        if left[partition] > 0:
            left[partition] -= 1
        else:
            yield index


def send_airlines(bootstrap: str, records: list[tuple[bytes, bytes]]) -> None:
    """Sends each airline that the topic lacks, and the missing records that were typed by hand."""
    stored, typed_count = end_offsets(bootstrap, AIRLINES), sum(end_offsets(bootstrap, TYPED))
    with Producer(bootstrap, linger_ms=0) as producer:
        futures = [producer.send(AIRLINES, records[index][1], key=records[index][0]) for index in missing((k for k, _ in records), stored)]
        futures += [producer.send(TYPED, value) for value in TYPED_WRONG[typed_count:]]
        for future in futures:
            future.result()


class FlightSender(threading.Thread):
    """Sends what is missing. ``sent_count`` counts what is acknowledged, in earlier runs too; ``error`` is why the thread ended early."""

    def __init__(self, bootstrap: str, flights: Flights, stored: list[int], *, ahead_max: int | None = None) -> None:
        super().__init__(name="flight-sender", daemon=True)
        self._servers = bootstrap
        self._flights = flights
        self._present = stored
        self._ahead_max = ahead_max
        self._stopping = threading.Event()
        self.sent_before = self.sent_count = sum(stored)
        self.read_count = 0  # set by the caller that knows it, with ahead_max
        self.hold_at: int | None = None  # at most so many flights are in the topic until the caller sets another number, or None
        self.acknowledged_at: float | None = None  # by time.monotonic, the first that was sent to a watched partition since it is
        self.error: BaseException | None = None
        self._watched: Collection[int] = ()

    def stop(self) -> None:
        """Stops the sending; what is under way is acknowledged."""
        self._stopping.set()
        if self.ident is not None:
            self.join()

    def watch(self, partitions: Collection[int]) -> None:
        """Sets ``acknowledged_at`` with the first acknowledgement of what is sent to these partitions from now on."""
        self.acknowledged_at, self._watched = None, frozenset(partitions)

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the job raises it
            self.error = error

    async def _send(self) -> None:
        indexes = missing(self._flights.carriers(), self._present)
        under_way: deque[list[asyncio.Future[RecordMetadata]]] = deque()
        count = self.sent_before  # with what is under way
        async with aio.Producer(self._servers, client_id="ottla-demo", linger_ms=20, batch_size=262_144) as producer:
            while not self._stopping.is_set():
                room = CHUNK if (hold_at := self.hold_at) is None else min(CHUNK, hold_at - count)
                if self._is_far_ahead or room <= 0:
                    await (self._settle(under_way.popleft()) if under_way else asyncio.sleep(PAUSE_S))
                    continue
                chunk = [self._flights.record(index) for index in islice(indexes, room)]
                if not chunk:
                    break
                under_way.append([await self._send_one(producer, key, value) for key, value in chunk])
                count += len(chunk)
                while len(under_way) > CHUNKS_UNDER_WAY_MAX:
                    await self._settle(under_way.popleft())
            await producer.flush()
            while under_way:
                await self._settle(under_way.popleft())

    async def _send_one(self, producer: aio.Producer, key: bytes, value: bytes) -> asyncio.Future[RecordMetadata]:
        watched = self._watched
        future = await producer.send(FLIGHTS, value, key=key)
        if watched and partition_for_key(key, TOPICS[FLIGHTS]) in watched:
            self._watched = ()  # one record is enough
            future.add_done_callback(self._note)
        return future

    def _note(self, future: asyncio.Future[RecordMetadata]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.acknowledged_at = time.monotonic()

    @property
    def _is_far_ahead(self) -> bool:
        """What an earlier run sent does not count: when that is read is unknown."""
        return self._ahead_max is not None and self.sent_count - max(self.read_count, self.sent_before) > self._ahead_max

    async def _settle(self, futures: list[asyncio.Future[RecordMetadata]]) -> None:
        for future in futures:
            await future
        self.sent_count += len(futures)
