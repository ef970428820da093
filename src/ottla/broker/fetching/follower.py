"""What a follower is given: all up to the log's end. What it asks for says what it has (KIP-101, KIP-903).

A replica that is not in sync, and throttled, gets nothing while the rate is exceeded (KIP-73). In a session, only partitions that are
due are looked at (``follower_watch.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

from ottla.broker.fetching.fetch_pass import SLICE_PARTITIONS, FetchPass, ParkedFetch
from ottla.broker.fetching.follower_watch import FollowerWatch
from ottla.broker.fetching.session_watch import Connection
from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replication import Replication
from ottla.broker.requests.context import RequestContext
from ottla.broker.tasks.slices import pause
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import CLUSTER, Operation, ResourceType
from ottla.messages.fetch import FetchPartition, PartitionData
from ottla.replication.fetch_sessions import FetchSession, PartitionKey
from ottla.types import NO_EPOCH


class FollowerPolicy:
    """A ``fetch_pass.Policy``, for the broker ``node`` in that epoch; ``replication`` is what this broker's replicas share."""

    waits_for_leaders: ClassVar = False
    __slots__ = ("_broker_epoch", "_committed", "_has_asked", "_node", "_replication", "_session", "_telling", "_throttled_bytes", "_watch")

    def __init__(
        self, replication: Replication, session: FetchSession | None, connection: Connection, *, node: int, broker_epoch: int
    ) -> None:
        self._replication = replication
        self._session = session
        self._node = node
        self._broker_epoch = broker_epoch
        self._has_asked = False
        self._committed: list[Leading] = []  # whose high watermark this fetch has moved
        self._telling: asyncio.Handle | None = None  # while the pass goes on
        self._throttled_bytes = 0
        self._watch = None if session is None else _watch_of(session, connection, node)

    def may_read(self, context: RequestContext, topic: str) -> bool:
        return context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER)

    @property
    def settles(self) -> bool:
        return self._watch is not None

    @property
    def settles_before_waiting(self) -> bool:
        return self._watch is not None

    def begin(self) -> None:
        self._throttled_bytes = 0
        watch = self._watch
        if watch is not None:
            watch.has_news = False
            if not self._has_asked:
                watch.asks(self._broker_epoch, self._replication.clock.monotonic_ms())

    def end(self) -> Coroutine[Any, Any, None] | None:
        """Answers even after a failed pass: the requests that wait for a commit would wait until something else is committed."""
        self._has_asked = True
        if self._telling is not None:
            self._telling.cancel()
        return self._tell_all_committed() if self._committed else None

    async def _tell_all_committed(self) -> None:
        while self._committed:
            self._tell_committed()
            if self._committed:
                await pause()

    def _tell_committed(self) -> None:
        """Answers the requests that wait for what this fetch has committed, some partitions at a time."""
        advanced, self._committed = self._committed[:SLICE_PARTITIONS], self._committed[SLICE_PARTITIONS:]
        for leading in advanced:
            leading.committed()

    def _tell_meanwhile(self) -> None:
        """Answers while the pass waits for a disk: no other request has to wait for that."""
        self._telling = None
        self._tell_committed()
        if self._committed:
            self._telling = asyncio.get_running_loop().call_soon(self._tell_meanwhile)

    async def read(self, fetch: FetchPass, partition: Partition, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        if self._watch is not None and self._session is not None:
            self._watch.place_of((partition.topic_id if self._session.uses_topic_ids else partition.topic, wanted.partition), partition)
        log = partition.log
        partition.check_leads(wanted.current_leader_epoch)
        data.high_watermark = partition.high_watermark
        data.last_stable_offset = partition.last_stable_offset
        data.log_start_offset = log.log_start_offset
        data.aborted_transactions = None
        if wanted.last_fetched_epoch != NO_EPOCH and fetch.diverges(partition, wanted, data):
            return
        offset, end = wanted.fetch_offset, log.log_end_offset
        if not log.log_start_offset <= offset <= end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        leading = partition.leading
        if leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._node} is no replica of {partition.key}")
        if not self._has_asked:
            self._note_progress(leading, wanted)
            data.high_watermark = leading.machine.high_watermark
        fetch.seen.setdefault(partition, _progress_of(partition))
        if offset >= end or (budget <= 0 and fetch.size_bytes) or leading.holds_back(self._node):
            return
        part = await log.read(
            offset, max_bytes=min(wanted.partition_max_bytes, budget), end_offset=end, min_one_message=not fetch.size_bytes
        )
        if part is not None:
            data.records = part.region
            size = len(part.region)
            fetch.size_bytes += size
            leading.sent(self._node, offset)
            meters = self._replication.meters
            meters.bytes_out += size
            if partition.role.is_adding(self._node):
                meters.reassignment_bytes_out += size
            if leading.is_throttled:
                self._throttled_bytes += size

    def _note_progress(self, leading: Leading, wanted: FetchPartition) -> None:
        """Notes that the follower has everything before its fetch offset: that counts when it asks, not when it is answered."""
        if leading.on_follower_fetch(
            self._node, broker_epoch=self._broker_epoch, offset=wanted.fetch_offset, start_offset=wanted.log_start_offset
        ):
            self._committed.append(leading)
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_soon(self._tell_meanwhile)

    def is_absent(self, key: PartitionKey) -> None:
        pass

    def answered(self) -> None:
        if self._throttled_bytes:  # of replicas in sync, too: all of them together are to keep to the rate
            self._replication.throttles.leader.record(self._throttled_bytes)

    def settle(self, key: PartitionKey) -> None:
        if self._watch is not None:
            self._watch.settle(key)

    # -- waiting

    def may_wait(self, fetch: FetchPass) -> bool:
        return len(fetch.seen) > 0 or self._is_watched

    def is_enough(self, fetch: FetchPass, missing_bytes: int) -> bool:
        return missing_bytes <= 0

    def has_news(self, fetch: FetchPass) -> bool:
        if self._watch is not None and self._is_watched:
            return self._watch.has_news
        return any(_progress_of(partition) > seen for partition, seen in fetch.seen.items())

    @property
    def _is_watched(self) -> bool:
        session = self._session
        return session is not None and session.watch is self._watch and len(session.partitions) > 0

    def wait(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        if self._watch is not None and self._is_watched:
            self._watch.parked = parked
        else:
            for partition in fetch.seen:
                partition.follower_waiters[parked] = None

    def leave(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        if self._watch is not None and self._watch.parked is parked:
            self._watch.parked = None
        else:
            for partition in fetch.seen:
                partition.follower_waiters.pop(parked, None)

    def is_held_back(self, partition: Partition) -> bool:
        return partition.leading is not None and partition.leading.holds_back(self._node)


def _progress_of(partition: Partition) -> int:
    """Returns a number that grows with what a follower waits for: both ends of the log."""
    return partition.log.log_end_offset + partition.log.log_start_offset


def _watch_of(session: FetchSession, connection: Connection, node: int) -> FollowerWatch:
    """Returns the session's watch, which starts with the connection and the follower."""
    watch = session.watch
    if isinstance(watch, FollowerWatch) and watch.connection is connection:
        return watch
    if watch is not None:
        watch.ended()
    return FollowerWatch(session, connection, node)
