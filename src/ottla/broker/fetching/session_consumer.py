"""A consumer's fetch in a session of many partitions: those that are at rest are not looked at (``consumer_watch.py``).

The answer is the same as if all were looked at. A session of few partitions is not watched: looking at all is cheaper then.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ottla.broker.fetching.consumer import ConsumerPolicy
from ottla.broker.fetching.consumer_watch import ConsumerWatch
from ottla.broker.fetching.fetch_pass import FetchPass, ParkedFetch
from ottla.broker.fetching.session_watch import Connection
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import RequestContext
from ottla.messages.fetch import FetchPartition, FetchRequest, PartitionData
from ottla.replication.fetch_sessions import FetchSession, PartitionKey

NO_REPLICA: Final = -1


class SessionConsumerPolicy:
    """A ``fetch_pass.Policy``: a consumer's, whose session is watched."""

    waits_for_leaders: ClassVar = False
    settles: ClassVar = True
    settles_before_waiting: ClassVar = False
    __slots__ = ("_consumer", "_session", "_stirred", "_watch")

    def __init__(
        self, consumer: ConsumerPolicy, request: FetchRequest, session: FetchSession, connection: Connection, rules: object
    ) -> None:
        """Makes the policy of a watched session: ``consumer`` reads, under ``rules`` (``Rights.version``).

        Under others, what is at rest is looked at again.
        """
        self._consumer = consumer
        self._session = session
        watch = session.watch
        if not isinstance(watch, ConsumerWatch) or watch.connection is not connection or watch.rules is not rules:
            if watch is not None:
                watch.ended()
            watch = ConsumerWatch(session, connection, rules)
        self._watch = watch
        watch.asks(request.isolation_level)

    def may_read(self, context: RequestContext, topic: str) -> bool:
        return self._consumer.may_read(context, topic)

    def begin(self) -> None:
        self._stirred = self._watch.stirred
        self._consumer.begin()

    async def read(self, fetch: FetchPass, partition: Partition, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        topic = partition.topic_id if self._session.uses_topic_ids else partition.topic
        place = self._watch.look((topic, wanted.partition), partition)
        await self._consumer.read(fetch, partition, wanted, data, budget)
        if place is None:
            return
        if data.diverging_epoch is None and data.preferred_read_replica == NO_REPLICA and wanted.fetch_offset >= fetch.seen[partition]:
            place.seen_by = self  # without having suspended: there was nothing to read

    def is_absent(self, key: PartitionKey) -> None:
        self._watch.forgotten(key)

    def end(self) -> None:
        pass

    def answered(self) -> None:
        pass

    def settle(self, key: PartitionKey) -> None:
        self._watch.settle(key, self)

    # -- waiting

    def may_wait(self, fetch: FetchPass) -> bool:
        return len(fetch.seen) > 0 or (self._is_watched and len(self._session.partitions) > 0)

    def is_enough(self, fetch: FetchPass, missing_bytes: int) -> bool:
        return missing_bytes <= 0 if self._is_watched else self._consumer.is_enough(fetch, missing_bytes)  # its places have judged that

    def has_news(self, fetch: FetchPass) -> bool:
        return self._watch.stirred != self._stirred or self._consumer.has_news(fetch)

    def wait(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        if self._is_watched:
            self._watch.parked[parked] = None
        else:
            self._consumer.wait(fetch, parked)

    def leave(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        self._watch.parked.pop(parked, None)
        self._consumer.leave(fetch, parked)

    def is_held_back(self, partition: Partition) -> bool:
        return False

    @property
    def _is_watched(self) -> bool:
        return self._session.watch is self._watch
