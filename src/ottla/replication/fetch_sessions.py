"""Fetch sessions: a consumer names its partitions once, afterwards only what changed crosses the wire (KIP-227).

=============  ==============  ======================================================================
session id     epoch           meaning
=============  ==============  ======================================================================
0              -1              no session: a full fetch, answered in full
0              0               start a session with these partitions
n              -1              end session n, then as without a session
n              0               end session n, then start another
n              the next one    partitions to add or change, partitions to forget; all others stay;
                               with the last one forgotten, the session ends
=============  ==============  ======================================================================

A *watched* session knows which of its partitions are *due*: named by the last request, changed since they were answered, or not read to
their end then. The others are not looked at, however many they are. Its watch says what has changed, and is notified of what the session
no longer has.

Epochs count 1, 2, ... 2147483647, 1 ...  A reply with session id 0 says "no session" and is always legal, so a full cache
costs bandwidth and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import msgspec

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, PartitionData
from ottla.ports import Random

EPOCH_FINAL: Final = -1
EPOCH_INITIAL: Final = 0
EPOCH_MAX: Final = 2**31 - 1
PARTITIONS_MAX: Final = 10_000
"""Of one session: each of its requests costs a look at all of them. Who fetches more does so without a session."""
WATCHED_PARTITIONS_MIN: Final = 16
"""A consumer's session of fewer is not watched: looking at all of them is as cheap as knowing which to look at."""
SORTED_SHARE: Final = 8
"""Where more than one partition of so many is due, going through all of them is quicker than sorting."""
EVICTION_MS: Final = 120_000
"""A session idle for longer gives way to a new one when the cache is full."""

TopicKey = str | bytes
"""A topic's name up to v12, its id from v13 on."""
PartitionKey = tuple[TopicKey, int]


class _Cached:
    """One partition of a session: what to fetch next, and what was said of it last."""

    __slots__ = ("high_watermark", "log_start_offset", "rank", "request", "was_error")

    def __init__(self, request: FetchPartition, rank: int) -> None:
        self.request = request
        self.rank = rank  # grows in the order of the session's partitions
        self.high_watermark = -1
        self.log_start_offset = -1
        self.was_error = False

    def has_said(self, high_watermark: int, log_start_offset: int) -> bool:
        """True when the client knows these, and was given no error last."""
        return self.high_watermark == high_watermark and self.log_start_offset == log_start_offset and not self.was_error

    def is_news(self, data: PartitionData) -> bool:
        """True when the answer must carry the partition; remembers what was said."""
        records = data.records
        news = (
            (records is not None and len(records) > 0)
            or data.error_code != 0
            or self.was_error
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch is not None
            or data.preferred_read_replica != -1
        )
        self.high_watermark, self.log_start_offset = data.high_watermark, data.log_start_offset
        self.was_error = data.error_code != 0
        return news


class SessionWatch(Protocol):
    """The watch that says which partitions of a session are due."""

    def begin_pass(self) -> Iterable[PartitionKey]:
        """Returns the partitions that the next answer is made from, in their order."""
        ...

    def forgotten(self, key: PartitionKey) -> None:
        """Notes that the session no longer has the partition."""
        ...

    def ended(self) -> None:
        """Notes that the session has ended."""
        ...


class FetchSession:
    """One client's partitions. Those that gave data move to the end, so that a full answer starves no partition."""

    __slots__ = ("_ranks", "due", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids", "watch")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[PartitionKey, _Cached] = OrderedDict()
        self.watch: SessionWatch | None = None
        self.due: dict[PartitionKey, None] = {}  # while it is watched; all of them are partitions of the session
        self._ranks = 0

    @property
    def is_worth_watching(self) -> bool:
        """Whether it is watched, or has so many partitions that it should be."""
        return self.watch is not None or len(self.partitions) >= WATCHED_PARTITIONS_MIN

    def watched_by(self, watch: SessionWatch | None) -> None:
        """Lets ``watch``, or none, watch the session from now on; all partitions are due."""
        self.watch = watch
        self.due = {} if watch is None else dict.fromkeys(self.partitions)

    def add(self, request: FetchRequest) -> None:
        """Adds the partitions that the request fetches, or changes what it fetches of them."""
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.topic_id if self.uses_topic_ids else topic.topic, partition.partition)
                cached = self.partitions.get(key)
                if cached is None:
                    self._ranks += 1
                    self.partitions[key] = _Cached(partition, self._ranks)
                else:
                    cached.request = partition
                if self.watch is not None:
                    self.due[key] = None

    def forget(self, request: FetchRequest) -> None:
        """Removes the partitions that the request forgets."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                key = (forgotten.topic_id if self.uses_topic_ids else forgotten.topic, index)
                self.partitions.pop(key, None)
                if self.watch is not None:
                    self.due.pop(key, None)
                    self.watch.forgotten(key)

    def move_to_end(self, key: PartitionKey) -> None:
        """Moves the partition after all others."""
        self.partitions.move_to_end(key)
        self._ranks += 1
        self.partitions[key].rank = self._ranks

    def due_in_order(self) -> list[PartitionKey]:
        """Returns the partitions that are due, in the order of the session's partitions."""
        due, partitions = self.due, self.partitions
        if len(due) > len(partitions) // SORTED_SHARE:
            return [key for key in partitions if key in due]
        return sorted(due, key=lambda key: partitions[key].rank)

    def take_due(self) -> Iterable[PartitionKey]:
        """Takes the partitions that are due, in the order in which they became so. What changes from here on is due again."""
        due, self.due = self.due, {}
        return due


class FetchPlan(msgspec.Struct, eq=False):
    """The plan of one request: the partitions to fetch, and the making of its answer. ``session`` is None for a full fetch."""

    request: FetchRequest
    session: FetchSession | None
    is_incremental: bool
    uses_topic_ids: bool

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session else 0

    def partitions(self) -> Iterator[tuple[TopicKey, FetchPartition]]:
        if self.session is None:
            for wanted in self.request.topics:
                for partition in wanted.partitions:
                    yield wanted.topic_id if self.uses_topic_ids else wanted.topic, partition
        elif self.session.watch is not None and self.is_incremental:
            for key in self.session.watch.begin_pass():
                cached = self.session.partitions.get(key)
                if cached is not None:
                    yield key[0], cached.request
        else:
            if self.session.watch is not None:
                self.session.watch.begin_pass()
            for (topic, _), cached in list(self.session.partitions.items()):  # a read may suspend, and the session change meanwhile
                yield topic, cached.request

    def answer_partition(self, topic: TopicKey, data: PartitionData, topics: dict[TopicKey, FetchableTopicResponse]) -> None:
        """Adds the partition to the topics of the response; an incremental response leaves out what is not news."""
        session = self.session
        if session is not None:
            key = (topic, data.partition_index)
            cached = session.partitions.get(key)
            is_news = cached is None or cached.is_news(data)
            if cached is not None and data.records:
                session.move_to_end(key)
            if self.is_incremental and not is_news:
                return
        found = topics.get(topic)
        if found is None:
            found = FetchableTopicResponse("", topic, []) if isinstance(topic, bytes) else FetchableTopicResponse(topic, partitions=[])
            topics[topic] = found
        found.partitions.append(data)


class FetchSessions:
    """The cache of one broker."""

    def __init__(self, random: Random, *, slot_count: int) -> None:
        self._random = random
        self._slot_count = slot_count
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, *, uses_topic_ids: bool, now_ms: int) -> FetchPlan:
        """Plans the answer. KafkaError with the response's top-level code when the session is not what the client thinks."""
        if request.session_epoch in (EPOCH_FINAL, EPOCH_INITIAL):
            if request.session_id:
                self._end(self._sessions.pop(request.session_id, None))
            begins = request.session_epoch == EPOCH_INITIAL and _partition_count(request) <= PARTITIONS_MAX
            session = self._begin(uses_topic_ids, now_ms) if begins else None
            if session is not None:
                session.add(request)  # it had none that it could forget
            return FetchPlan(request, session, is_incremental=False, uses_topic_ids=uses_topic_ids)
        return self._resume(request, uses_topic_ids, now_ms)

    def _resume(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchPlan:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            text = f"fetch session {request.session_id} is at epoch {session.epoch}, not {request.session_epoch}"
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, text)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session keeps to topic names or to topic ids")
        if max(len(session.partitions), _partition_count(request)) > PARTITIONS_MAX:
            self._end(self._sessions.pop(session.session_id))
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"a fetch session has {PARTITIONS_MAX} partitions at most")
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        session.add(request)
        session.forget(request)
        if not session.partitions:
            self._end(self._sessions.pop(session.session_id))
            return FetchPlan(request, None, is_incremental=False, uses_topic_ids=uses_topic_ids)
        return FetchPlan(request, session, is_incremental=True, uses_topic_ids=uses_topic_ids)

    def _end(self, session: FetchSession | None) -> None:
        if session is not None and session.watch is not None:
            session.watch.ended()

    def _begin(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._slot_count:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < EVICTION_MS:
                return None
            self._end(self._sessions.pop(oldest.session_id))
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.getrandbits(31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        return session


def _partition_count(request: FetchRequest) -> int:
    """Returns how many partitions the request names, to fetch or to forget."""
    forgotten = sum(len(topic.partitions) for topic in request.forgotten_topics_data)
    return forgotten + sum(len(topic.partitions) for topic in request.topics)
