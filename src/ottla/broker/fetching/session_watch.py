"""A fetch session, as the partitions that it reads know it: they say when there is something for its client.

Each partition that a pass has looked at has a *place* in the session, by which the partition reaches it. What a place is, and when a
partition is at rest, is different for consumers (``consumer_watch.py``) and followers (``follower_watch.py``); a partition at rest costs
nothing, since no fetch looks at it. The watch ends with its connection or its session; another one starts with all partitions due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.replicas.partition import Partition
from ottla.replication.fetch_sessions import FetchSession, PartitionKey

P = TypeVar("P")


class Connection(Protocol):
    """The client's; it calls ``abandon`` of its watches when it is closed."""

    watches: dict[Any, None]


class SessionWatch(Generic[P]):
    """A ``fetch_sessions.SessionWatch``; its two kinds define the first four methods. ``P`` is what a place is."""

    __slots__ = ("_places", "_session", "connection")

    def __init__(self, session: FetchSession, connection: Connection) -> None:
        self._session = session
        self._places: dict[PartitionKey, P] = {}
        self.connection = connection
        session.watched_by(self)
        connection.watches[self] = None

    def begin_pass(self) -> Iterable[PartitionKey]:
        """Returns what a pass looks at."""
        raise NotImplementedError

    def _enter(self, key: PartitionKey, partition: Partition) -> P:
        """Has the partition report from now on when something happens to it."""
        raise NotImplementedError

    def _leave(self, places: Mapping[PartitionKey, P]) -> None:
        """Ends the reports of the partitions of these places. There may be thousands."""
        raise NotImplementedError

    def _is_of(self, place: P, partition: Partition) -> bool:
        """True when the place is the partition's, and not that of an earlier one of its name."""
        raise NotImplementedError

    def place_of(self, key: PartitionKey, partition: Partition) -> P:
        """Returns the partition's place, which is made if it had none."""
        place = self._places.get(key)
        if place is None or not self._is_of(place, partition):
            self.forgotten(key)
            place = self._places[key] = self._enter(key, partition)
        return place

    def forgotten(self, key: PartitionKey) -> None:
        """Drops the partition, which the session or the broker no longer has."""
        place = self._places.pop(key, None)
        if place is not None:
            self._leave({key: place})

    def ended(self) -> None:
        """Ends the watch of the session."""
        places, self._places = self._places, {}
        self._leave(places)
        self.connection.watches.pop(self, None)
        if self._session.watch is self:
            self._session.watched_by(None)

    def abandon(self) -> None:
        """Abandons the watch, for the connection is closed."""
        self.ended()
