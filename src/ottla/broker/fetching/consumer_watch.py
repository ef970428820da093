"""A consumer's fetch session that is watched (``session_watch.py``).

A partition is *at rest* when a pass over it found nothing to read, no error and nothing that the consumer does not know, and nothing has
happened to it since. No fetch looks at it then. It is due again when the request names it, when what can be read of it grows, when its high
watermark, its last stable offset or its start moves, when its log fails, and when it is led differently, moved away or deleted.

A place is on its partition's list of those who wait. What is due stays due until a pass has settled it: one that is cut short leaves
everything to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.broker.fetching.session_watch import Connection, SessionWatch
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.waiting import AT_ONCE, AppendWaiter
from ottla.messages.fetch import READ_COMMITTED
from ottla.replication.fetch_sessions import FetchSession, PartitionKey


class ConsumerPlace:
    """One partition of the session."""

    __slots__ = ("_key", "_stable_offset", "_watch", "_withheld_bytes", "partition", "seen_by")

    def __init__(self, watch: ConsumerWatch, key: PartitionKey, partition: Partition) -> None:
        self._watch = watch
        self._key = key
        self.partition = partition
        self.seen_by: object = None  # the pass that found nothing to read in it, if nothing has happened since
        self._stable_offset = self._withheld_bytes = 0

    def look(self) -> None:
        """Prepares for a pass that is about to look at it: what an earlier one saw does not count."""
        partition = self.partition
        self.seen_by, self._stable_offset = None, partition.last_stable_offset
        self._withheld_bytes = AT_ONCE if self._stable_offset < partition.high_watermark else 0  # how much a transaction has started with

    def on_append(self, size_bytes: int) -> None:
        """Notes that the partition has so many bytes more; with 0, something else has changed that the next fetch reports.

        For a read_committed consumer there is more when a transaction has ended, and then all that came since it started.
        """
        self.seen_by = None
        if self._watch.is_read_committed and size_bytes < AT_ONCE:
            self._withheld_bytes += size_bytes
            stable_offset = self.partition.last_stable_offset
            size_bytes = 0
            if stable_offset > self._stable_offset:
                size_bytes, self._withheld_bytes = min(self._withheld_bytes, AT_ONCE), 0
                self._stable_offset = stable_offset
        self._watch.stir(self._key, size_bytes)


class ConsumerWatch(SessionWatch[ConsumerPlace]):
    """The watch over one consumer's session, for as long as its connection lasts."""

    __slots__ = ("_isolation_level", "parked", "rules", "stirred")

    def __init__(self, session: FetchSession, connection: Connection, rules: object) -> None:
        super().__init__(session, connection)
        self.rules = rules  # under which it looks
        self._isolation_level = -1
        self.parked: dict[AppendWaiter, None] = {}  # fetches of the session that wait
        self.stirred = 0  # how often there was more to read in a partition

    def _enter(self, key: PartitionKey, partition: Partition) -> ConsumerPlace:
        place = ConsumerPlace(self, key, partition)
        partition.waiters[place] = None
        return place

    def _leave(self, places: Mapping[PartitionKey, ConsumerPlace]) -> None:
        for place in places.values():
            place.partition.waiters.pop(place, None)

    def _is_of(self, place: ConsumerPlace, partition: Partition) -> bool:
        return place.partition is partition

    def asks(self, isolation_level: int) -> None:
        """Makes all due for a consumer of another isolation level, for which the partitions end elsewhere."""
        if isolation_level != self._isolation_level:
            self._isolation_level = isolation_level
            self._session.due = dict.fromkeys(self._session.partitions)

    @property
    def is_read_committed(self) -> bool:
        return self._isolation_level == READ_COMMITTED

    def begin_pass(self) -> Iterable[PartitionKey]:
        return self._session.due_in_order()

    def look(self, key: PartitionKey, partition: Partition) -> ConsumerPlace | None:
        """Returns the partition's place, which reports changes of it. What an earlier pass saw of it does not count.

        None when the watch has ended, or the session no longer has the partition: a later request may have come during the pass.
        """
        if self._session.watch is not self or key not in self._session.partitions:
            return None
        place = self.place_of(key, partition)
        place.look()
        return place

    def settle(self, key: PartitionKey, seen_by: object) -> None:
        """Settles the answered partition: it is at rest if that pass found nothing to read in it, and the consumer knows the rest."""
        session, place = self._session, self._places.get(key)
        cached = session.partitions.get(key)
        if cached is None or session.watch is not self:
            return
        if place is not None and place.seen_by is seen_by:
            partition = place.partition
            if cached.has_said(partition.high_watermark, partition.log.log_start_offset):
                session.due.pop(key, None)
                return
        session.due[key] = None

    def stir(self, key: PartitionKey, size_bytes: int) -> None:
        """Notes a change of the partition; the waiting fetches learn how much more there is."""
        self._session.due[key] = None
        self.stirred += size_bytes > 0
        for parked in list(self.parked):
            parked.on_append(size_bytes)

    def ended(self) -> None:
        super().ended()
        for parked in list(self.parked):  # nothing else would wake them
            parked.on_append(AT_ONCE)

    def abandon(self) -> None:
        """Abandons the watch, for the connection is closed."""
        self.parked.clear()
        super().abandon()
