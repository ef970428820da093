"""A follower's fetch session that is watched (``session_watch.py``): a place is the partition itself, which knows the watch.

A partition is *at rest* when its follower is in sync, has everything and knows everything that its fetches report: until it grows, its high
watermark or its start moves, its ISR or its leader changes. All others of the session are due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.broker.fetching.session_watch import Connection, SessionWatch
from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.waiting import AT_ONCE, FollowerWaiter
from ottla.replication.fetch_sessions import FetchSession, PartitionKey
from ottla.replication.leader import FetchTimes


class FollowerWatch(SessionWatch[Partition]):
    """The watch over the session of one follower, ``node``, for as long as its connection lasts."""

    __slots__ = ("_broker_epoch", "_node", "_resting", "_times", "has_news", "parked")

    def __init__(self, session: FetchSession, connection: Connection, node: int) -> None:
        super().__init__(session, connection)
        self._node = node
        self._broker_epoch = -1
        self._resting: dict[PartitionKey, Leading] = {}
        self._times = FetchTimes()
        self.parked: FollowerWaiter | None = None  # the fetch that waits
        self.has_news = False  # since the last pass over what was due started

    def _enter(self, key: PartitionKey, partition: Partition) -> Partition:
        partition.follower_waiters[self] = None
        return partition

    def _leave(self, places: Mapping[PartitionKey, Partition]) -> None:
        for key, partition in places.items():
            if (leading := self._resting.pop(key, None)) is not None:
                leading.machine.stir(self._node, self._times)
            partition.follower_waiters.pop(self, None)

    def _is_of(self, place: Partition, partition: Partition) -> bool:
        return place is partition

    def asks(self, broker_epoch: int, now_ms: int) -> None:
        """Takes the follower's fetch: what is at rest, it still has entirely. A new epoch of its broker is sent all partitions."""
        self._times.fetched_ms = now_ms
        if broker_epoch != self._broker_epoch:
            self._broker_epoch = broker_epoch
            self._stir_all()
            self._session.due = dict.fromkeys(self._session.partitions)

    def begin_pass(self) -> Iterable[PartitionKey]:
        return self._session.take_due()

    def settle(self, key: PartitionKey) -> None:
        """Settles the partition after the pass: it is at rest, or due again."""
        session, partition = self._session, self._places.get(key)
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
        """Makes the partition due; the fetch that waits is answered if it was waiting for that (not for a size of 0)."""
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
