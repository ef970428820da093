"""The fetches that are under way.

A broker answers the requests of one connection in their order, and a fetch that finds no records waits there for fetch.max.wait.ms. It is
for all that is due at that broker. A partition that becomes due meanwhile (its leader is that broker now, it was assigned, sought or
resumed) waits for it no longer than HELD_MS: then it is asked for on another connection, by a fetch that waits for BRIEF_MS. Once the first
one has ended, one fetch is for all of them again. With Kafka's default of 500 ms no fetch lasts so long.

Partitions whose fetch has failed recover from that, and hold up no other partition of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.client.cluster import BRIEF_FETCH_LANE, FETCH_LANE
from ottla.client.late_answers import AGAIN_MS, LATE_MS
from ottla.types import TopicPartition

HELD_MS: Final = 1_000
BRIEF_MS: Final = 500
NEVER_MS: Final = 2**63


class Flight:
    """A fetch that is under way, of these partitions and the versions of their positions."""

    __slots__ = ("is_brief", "late_ms", "node", "since_ms", "task", "versions", "wait_ms")

    def __init__(self, node: int, versions: Mapping[TopicPartition, int], now_ms: int, wait_ms: int, *, is_brief: bool) -> None:
        self.node = node
        self.versions = versions
        self.since_ms = now_ms
        self.wait_ms = min(wait_ms, BRIEF_MS) if is_brief else wait_ms
        self.is_brief = is_brief
        self.late_ms = now_ms + self.wait_ms + LATE_MS
        self.task: asyncio.Task[None] | None = None

    @property
    def lane(self) -> str:
        """The connection that it goes over."""
        return BRIEF_FETCH_LANE if self.is_brief else FETCH_LANE


class Flights:
    """The fetches of one consumer: at most two to each broker, beside those that recover."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._whole: dict[int, Flight] = {}  # by the broker that is asked
        self._brief: dict[int, Flight] = {}
        self._recovering: dict[Flight, frozenset[TopicPartition]] = {}

    def __iter__(self) -> Iterator[Flight]:
        yield from self._whole.values()
        yield from self._brief.values()
        yield from self._recovering

    def due_ms(self, node: int, partition: TopicPartition, version: int) -> int | None:
        """Returns from when on the partition may be asked for there, as a time of the monotonic clock; None while an answer comes first."""
        if self._recovering and self._recovers(node, partition):
            return None
        if node in self._brief:
            return None
        whole = self._whole.get(node)
        if whole is None:
            return 0
        return None if whole.versions.get(partition) == version else whole.since_ms + HELD_MS

    def _recovers(self, node: int, partition: TopicPartition) -> bool:
        return any(flight.node == node and partition in failed for flight, failed in self._recovering.items())

    def depart(self, node: int, versions: Mapping[TopicPartition, int], now_ms: int, *, waits: bool) -> Flight:
        """Returns a new fetch, which is brief where another one is under way. One that does not wait is answered with what is there."""
        flight = Flight(node, versions, now_ms, self._wait_ms if waits else 0, is_brief=node in self._whole)
        (self._brief if flight.is_brief else self._whole)[node] = flight
        return flight

    def recover(self, flight: Flight, failed: Iterable[TopicPartition]) -> None:
        """Has only these partitions wait for the end of the fetch, which was answered or has failed."""
        self._leave(flight)
        self._recovering[flight] = frozenset(failed)

    def land(self, flight: Flight) -> None:
        """Removes the fetch, which has ended."""
        self._leave(flight)
        self._recovering.pop(flight, None)

    def _leave(self, flight: Flight) -> None:
        flights = self._brief if flight.is_brief else self._whole
        if flights.get(flight.node) is flight:
            del flights[flight.node]

    # Answers that are late

    def late(self, now_ms: int) -> list[Flight]:
        """Returns the fetches whose answers are late, for longer than they were to wait; each of them again after AGAIN_MS."""
        late = [flight for flight in self._asked() if flight.late_ms <= now_ms]
        for flight in late:
            flight.late_ms = now_ms + AGAIN_MS
        return late

    def late_ms(self, now_ms: int) -> int:
        """Returns when the next answer will be late; those that are late already do not count."""
        return min((flight.late_ms for flight in self._asked() if flight.late_ms > now_ms), default=NEVER_MS)

    def _asked(self) -> Iterator[Flight]:
        yield from self._whole.values()
        yield from self._brief.values()
