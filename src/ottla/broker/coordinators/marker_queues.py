"""The ends of transactions on their way to the leaders of their partitions, and what those answer on its way back.

To each broker one request is on its way, with all that was due to it, and a second one when the first has waited for a while: a partition
that lacks replicas must not hold the others. A request has at most one marker of a producer, because answers name the producer only. What
this broker leads is written without a request, by the same code as what others ask for (``end_markers.py``).

Nothing is given up here: each marker is answered, at last with NETWORK_EXCEPTION, and the coordinator decides whether it is sent again.

A partition that the image lacks was deleted, and if its topic is there, it was created again with fewer of them. The coordinator that added
the partition had it in its image; who leads in a later epoch, or was restarted in this one, has an image with that epoch, which is newer.
Apache Kafka's coordinators add without a look at their image, and may be before us: so a partition counts as deleted after some tries only,
in some seconds.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.coordinators.end_markers import EndMarkers
from ottla.broker.coordinators.shard import Shard
from ottla.broker.peers.broker_peers import BrokerPeers
from ottla.broker.tasks import eager
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.machine import Marker
from ottla.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.metadata.image import ClusterImage
from ottla.ports import TimerHandle, World
from ottla.transactions.commands import AnswerMarkers
from ottla.transactions.effects import LAST_DELAY_MS, WriteMarkers
from ottla.transactions.transaction import by_topic
from ottla.types import TopicPartition
from ottla.wire.schema import Response

log = get_logger(__name__)

SECOND_AFTER_MS: Final = 100
MARKERS_MAX: Final = 100
"""In one request: what follows from its answer is decided in one turn of the loop, in some milliseconds."""
LATER_MAX: Final = 32
"""Ends of transactions that are tried again in one turn of the loop."""


class _Due(NamedTuple):
    """The markers that one shard wants from one broker."""

    shard: Shard[Any]
    wanted: WriteMarkers
    partitions: tuple[TopicPartition, ...]

    @property
    def marker(self) -> Marker:
        wanted = self.wanted
        return Marker(
            wanted.producer_id, wanted.producer_epoch, wanted.is_commit, self.shard.leader_epoch, wanted.transaction_version
        )  # fmt: skip


class _Queue:
    """The queue of markers for one broker."""

    __slots__ = ("due", "sent_ms", "timer")

    def __init__(self) -> None:
        self.due: deque[_Due] = deque()
        self.sent_ms: list[int] = []  # of the requests that are on their way, oldest first
        self.timer: TimerHandle | None = None


class MarkerQueues:
    """The queues of one coordinating broker, one for each broker that is to write markers."""

    def __init__(self, world: World, node_id: int, controller: ActiveController, own: EndMarkers, peers: BrokerPeers) -> None:
        self._world = world
        self._node_id = node_id
        self._controller = controller
        self._own = own
        self._peers = peers
        self._queues: dict[int, _Queue] = {}
        self._later: list[tuple[int, int, Shard[Any], WriteMarkers]] = []  # a heap, by when it is due
        self._later_count = 0
        self._timer: TimerHandle | None = None
        self._is_closed = False

    @property
    def unknown_destination_count(self) -> int:
        """Ends of transactions that wait for a leader, or for another try."""
        return len(self._later)

    @property
    def log_append_retry_count(self) -> int:
        """Ends of transactions that wait for a request to their broker."""
        return sum(len(queue.due) for queue in self._queues.values())

    def send(self, shard: Shard[Any], wanted: WriteMarkers) -> None:
        """Asks the leaders of its partitions, now or when it is due."""
        if wanted.delay_ms:
            self._later_count += 1
            due_ms = self._world.clock.monotonic_ms() + wanted.delay_ms
            heapq.heappush(self._later, (due_ms, self._later_count, shard, wanted))
            self._look_later()
        else:
            self._send(shard, wanted)

    def _look_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._later and not self._is_closed:
            delay_ms = max(0, self._later[0][0] - self._world.clock.monotonic_ms())
            self._timer = self._world.timers.call_later_ms(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._world.clock.monotonic_ms()
        for _ in range(LATER_MAX):
            if not self._later or self._later[0][0] > now_ms:
                break
            _, _, shard, wanted = heapq.heappop(self._later)
            self._send(shard, wanted)
        self._look_later()

    def _send(self, shard: Shard[Any], wanted: WriteMarkers) -> None:
        if shard.is_closed or self._is_closed:
            return
        image = self._controller.image
        leaders, missing = _leaders(image, wanted.partitions)
        if missing:
            is_late = wanted.delay_ms >= LAST_DELAY_MS
            codes = dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            _answer(_Due(shard, wanted, tuple(missing)), codes, frozenset(missing if is_late else ()))
        for leader, partitions in leaders.items():
            due = _Due(shard, wanted, tuple(partitions))
            if leader == self._node_id:
                eager.run(self._write_own(image, due), _note_failure)
            elif leader < 0:
                _answer(due, dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                self._queues.setdefault(leader, _Queue()).due.append(due)
        for leader in leaders:
            if leader in self._queues:
                self._go_on(leader)

    async def _write_own(self, image: ClusterImage, due: _Due) -> None:
        marker = due.marker
        codes = await self._own.write(image, [(marker, partition) for partition in due.partitions])
        _answer(due, dict(zip(due.partitions, codes, strict=True)))

    def _go_on(self, broker_id: int) -> None:
        queue = self._queues[broker_id]
        now_ms = self._world.clock.monotonic_ms()
        while queue.due and not self._is_closed:
            if queue.sent_ms:
                wait_ms = queue.sent_ms[0] + SECOND_AFTER_MS - now_ms
                if len(queue.sent_ms) > 1 or wait_ms > 0:
                    if queue.timer is None and len(queue.sent_ms) == 1:
                        queue.timer = self._world.timers.call_later_ms(wait_ms, partial(self._on_second, broker_id))
                    return
            taken = _taken(queue)
            if taken:
                queue.sent_ms.append(now_ms)
                self._peers.send(broker_id, _request(taken), partial(self._on_answer, broker_id, now_ms, taken))

    def _on_second(self, broker_id: int) -> None:
        self._queues[broker_id].timer = None
        self._go_on(broker_id)

    def _on_answer(self, broker_id: int, sent_ms: int, taken: list[_Due], response: Response | None) -> None:
        queue = self._queues[broker_id]
        queue.sent_ms.remove(sent_ms)
        assert response is None or isinstance(response, WriteTxnMarkersResponse), "an API has one response type"
        found = {} if response is None else {result.producer_id: result.topics for result in response.markers}
        for due in taken:
            codes = dict.fromkeys(due.partitions, int(ErrorCode.NETWORK_EXCEPTION))
            for topic in found.get(due.wanted.producer_id, ()):
                for partition in topic.partitions:
                    key = TopicPartition(topic.name, partition.partition_index)
                    if key in codes:
                        codes[key] = partition.error_code
            _answer(due, codes)
        self._go_on(broker_id)

    def close(self) -> None:
        """Stops all sending."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()


def _leaders(image: ClusterImage, partitions: Iterable[TopicPartition]) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Returns the partitions by leader (-1 without one), and the partitions that the image lacks."""
    leaders: dict[int, list[TopicPartition]] = {}
    missing = []
    for name, indexes in by_topic(partitions).items():
        topic = image.topics.get(name)
        for index in indexes:
            key = TopicPartition(name, index)
            known = None if topic is None else topic.partitions.get(index)
            if known is None:
                missing.append(key)
            else:
                leaders.setdefault(known.leader, []).append(key)
    return leaders, missing


def _taken(queue: _Queue) -> list[_Due]:
    """Takes what goes into the next request. What belongs to a shard that has ended is dropped."""
    taken: dict[int, _Due] = {}
    left: deque[_Due] = deque()
    while queue.due and len(taken) < MARKERS_MAX:
        due = queue.due.popleft()
        if due.shard.is_closed:
            continue
        if due.wanted.producer_id in taken:
            left.append(due)
        else:
            taken[due.wanted.producer_id] = due
    queue.due.extendleft(reversed(left))
    return list(taken.values())


def _request(taken: list[_Due]) -> WriteTxnMarkersRequest:
    markers = []
    for due in taken:
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for key in due.partitions:
            topics.setdefault(key.topic, WritableTxnMarkerTopic(key.topic)).partition_indexes.append(key.partition)
        wanted = due.wanted
        markers.append(
            WritableTxnMarker(
                wanted.producer_id, wanted.producer_epoch, wanted.is_commit, list(topics.values()), due.shard.leader_epoch,
                wanted.transaction_version,
            )
        )  # fmt: skip
    return WriteTxnMarkersRequest(markers)


def _answer(due: _Due, codes: Mapping[TopicPartition, int], deleted: frozenset[TopicPartition] = frozenset()) -> None:
    """Passes the codes to the shard that asked, which decides what they mean, if it still leads."""
    wanted = due.wanted
    command = AnswerMarkers(
        wanted.transactional_id, wanted.producer_id, wanted.producer_epoch,
        tuple((key, int(code)) for key, code in codes.items()), deleted,
    )  # fmt: skip
    due.shard.tell_surely(command, wanted.transactional_id, str(due.partitions[0]))


def _note_failure(_: None, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, asyncio.CancelledError):  # cancelled: the node has stopped
        log.error("end_markers_failed", exc_info=error)
