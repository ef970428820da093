"""A consumer's fetch in a session of many partitions: those that are at rest are not looked at (``broker/replicas/consumer_watch.py``).

The answer is the one that a look at all of them would give. A session of few partitions is not watched: looking at all is cheaper then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.handlers.fetch_reading import Reading
from ottla.broker.replicas.consumer_watch import ConsumerWatch
from ottla.broker.requests.context import RequestContext
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from ottla.replication.fetch_sessions import FetchPlan, FetchSession, PartitionKey, TopicKey

if TYPE_CHECKING:
    from ottla.broker.handlers.fetch_reading import ParkedFetch
    from ottla.broker.parts import Parts

NO_REPLICA: Final = -1


class WatchedReading(Reading):
    __slots__ = ("_session", "_stirred", "_watch")

    def __init__(self, parts: Parts, context: RequestContext, request: FetchRequest, plan: FetchPlan, session: FetchSession) -> None:
        super().__init__(parts, context, request, plan)
        self._session = session
        watch = session.watch
        if not isinstance(watch, ConsumerWatch) or watch.connection is not context.connection:
            if watch is not None:
                watch.ended()
            watch = ConsumerWatch(session, context.connection)
        self._watch = watch
        watch.asks(request.isolation_level)

    async def read(self) -> None:
        self._stirred = self._watch.stirred
        await super().read()

    async def _read_partition(self, topic: TopicKey, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        store, key = self._parts.partitions, (topic, wanted.partition)
        partitions = store.by_name.get(topic) if isinstance(topic, str) else store.by_id.get(topic)
        if partitions is None or (partition := partitions.get(wanted.partition)) is None:
            self._watch.forgotten(key)
            raise self._absent(topic, wanted.partition)
        place = self._watch.look(key, partition)
        await super()._read_partition(topic, wanted, data, budget)
        if place is None:
            return
        if data.diverging_epoch is None and data.preferred_read_replica == NO_REPLICA and wanted.fetch_offset >= self.seen[partition]:
            place.seen_by = self  # without having suspended: there was nothing to read

    async def answer(self) -> FetchResponse:
        response = await super().answer()
        await self.settle()
        return response

    def _settle(self, key: PartitionKey) -> None:
        self._watch.settle(key, self)

    # -- waiting

    @property
    def may_wait(self) -> bool:
        return len(self.seen) > 0 or (self._is_watched and len(self._session.partitions) > 0)

    def is_enough(self, missing_bytes: int) -> bool:
        return missing_bytes <= 0 if self._is_watched else super().is_enough(missing_bytes)  # its places have judged that

    @property
    def has_news(self) -> bool:
        return self._watch.stirred != self._stirred or super().has_news

    def wait(self, parked: ParkedFetch) -> None:
        if self._is_watched:
            self._watch.parked[parked] = None
        else:
            super().wait(parked)

    def leave(self, parked: ParkedFetch) -> None:
        self._watch.parked.pop(parked, None)
        super().leave(parked)

    @property
    def _is_watched(self) -> bool:
        return self._session.watch is self._watch
