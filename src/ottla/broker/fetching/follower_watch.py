"""A follower's fetch session, as the partitions that it follows know it: they say when there is something for the follower.

A partition is *at rest* when its follower is in sync, has everything and was told all that there is to tell. It costs nothing then: no
fetch looks at it until it grows, its high watermark or its start moves, its ISR or its leader changes. All others of the session are due.
The watch ends with its connection or its session; another one begins with all partitions due.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.waiting import AT_ONCE, FollowerWaiter
from ottla.replication.fetch_sessions import FetchSession, PartitionKey
from ottla.replication.leader import FetchTimes


class Connection(Protocol):
    """Of the follower; it calls ``abandon`` of its watches when it is closed."""

    watches: dict[Any, None]


class FollowerWatch:
    __slots__ = ("_broker_epoch", "_node", "_partitions", "_resting", "_session", "_times", "connection", "has_news", "parked")

    def __init__(self, session: FetchSession, connection: Connection, node: int) -> None:
        self._session = session
        self._node = node
        self._broker_epoch = -1
        self._partitions: dict[PartitionKey, Partition] = {}  # which know this watch
        self._resting: dict[PartitionKey, Leading] = {}
        self._times = FetchTimes()
        self.connection = connection
        self.parked: FollowerWaiter | None = None  # the fetch that waits
        self.has_news = False  # since the last pass over what was due began
        session.watched_by(self)
        connection.watches[self] = None

    def asks(self, broker_epoch: int, now_ms: int) -> None:
        """The follower fetches: what is at rest, it still has entirely. Another epoch of its broker is told of all partitions."""
        self._times.fetched_ms = now_ms
        if broker_epoch != self._broker_epoch:
            self._broker_epoch = broker_epoch
            self._stir_all()
            self._session.due = dict.fromkeys(self._session.partitions)

    def begin_pass(self) -> Iterable[PartitionKey]:
        return self._session.take_due()

    def look(self, key: PartitionKey, partition: Partition) -> None:
        """The partition will say when it changes."""
        known = self._partitions.get(key)
        if known is not partition:
            if known is not None:
                self.forgotten(key)
            self._partitions[key] = partition
            partition.follower_waiters[self] = None

    def settle(self, key: PartitionKey) -> None:
        """The pass over the partition is over: it is at rest, or due again."""
        session, partition = self._session, self._partitions.get(key)
        cached = session.partitions.get(key)
        if cached is None or key in session.due or session.watch is not self:
            return
        leading = None if partition is None else partition.leading
        if partition is None or leading is None or leading.has_ended:
            session.due[key] = None
            return
        log, machine = partition.log, leading.machine
        is_known = cached.has_said(partition.high_watermark, log.log_start_offset)
        has_everything = cached.request.fetch_offset == log.log_end_offset and not log.is_failed
        start_offset = cached.request.log_start_offset
        if is_known and has_everything and machine.rest(self._node, self._times, end_offset=log.log_end_offset, start_offset=start_offset):
            self._resting[key] = leading
        else:
            session.due[key] = None

    def on_leader_progress(self, partition: Partition, size_bytes: int) -> None:
        """The partition is due; the fetch that waits is answered if it was waiting for that (not for a size of 0)."""
        key: PartitionKey = (partition.topic_id if self._session.uses_topic_ids else partition.topic, partition.index)
        self._session.due[key] = None
        self._stir(key)
        if size_bytes and (size_bytes >= AT_ONCE or partition.leading is None or not partition.leading.holds_back(self._node)):
            self.has_news = True
            if self.parked is not None:
                self.parked.on_leader_progress(partition, size_bytes)

    def _stir(self, key: PartitionKey) -> None:
        leading = self._resting.pop(key, None)
        if leading is not None:
            leading.machine.stir(self._node, self._times)

    def _stir_all(self) -> None:
        resting, self._resting = self._resting, {}
        for leading in resting.values():
            leading.machine.stir(self._node, self._times)

    def forgotten(self, key: PartitionKey) -> None:
        self._stir(key)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            partition.follower_waiters.pop(self, None)

    def ended(self) -> None:
        self._stir_all()
        partitions, self._partitions = self._partitions, {}
        for partition in partitions.values():
            partition.follower_waiters.pop(self, None)
        self.connection.watches.pop(self, None)
        if self._session.watch is self:
            self._session.watched_by(None)

    def abandon(self) -> None:
        """The connection is closed."""
        self.ended()
