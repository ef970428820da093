"""The ends of transactions, written into the partitions that this broker leads: for its own coordinators and other brokers' coordinators.

A marker is answered when it is committed, within a second; REQUEST_TIMED_OUT says that it is not yet. In ``__consumer_offsets`` it is a
command of the group coordinator, which has applied it before the answer. Codes are those that Kafka's coordinators understand; they throw
on others. Source: KIP-98, KIP-1228, KAFKA-17507.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from ottla.broker.coordinators.batches import write_marker
from ottla.broker.replicas.access import led
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.machine import Marker
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

log = get_logger(__name__)

ANSWERED_WITHIN_MS: Final = 1000
_NOT_READY: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class GroupMarkers(Protocol):
    async def write_marker(self, index: int, marker: Marker) -> None:
        """Writes the marker into that partition of ``__consumer_offsets``, committed and applied; KafkaError otherwise."""
        ...


def _check_has_producer(marker: Marker) -> None:
    """Raises UNKNOWN_SERVER_ERROR for a marker of no producer, or without an epoch, as Kafka answers: readers stop at such a batch."""
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        text = f"producer id {marker.producer_id} and epoch {marker.producer_epoch}: a transaction has both, from 0 on"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)


class _Results:
    """One code for each marker and partition, some of which are still to come."""

    __slots__ = ("_all_known", "_unknown", "codes", "is_over")

    def __init__(self, count: int) -> None:
        self.codes: list[int] = [ErrorCode.REQUEST_TIMED_OUT] * count
        self._unknown = count
        self._all_known: asyncio.Future[None] | None = None
        self.is_over = False

    def note(self, places: Sequence[int], _: None, error: BaseException | None) -> None:
        """Notes that the markers there are committed, or why they are not."""
        if self.is_over:
            return
        code = _code_of(error)
        for at in places:
            self.codes[at] = code
        self._unknown -= len(places)
        if self._unknown == 0:
            self.end()

    def end(self) -> None:
        if self._all_known is not None and not self._all_known.done():
            self._all_known.set_result(None)

    async def known(self) -> None:
        if self._unknown:
            self._all_known = asyncio.get_running_loop().create_future()
            await self._all_known
        self.is_over = True


class EndMarkers:
    """The writer of end markers on one broker."""

    def __init__(self, world: World, store: PartitionStore, groups: GroupMarkers) -> None:
        self._world = world
        self._store = store
        self._groups = groups

    async def write(self, image: ClusterImage, due: Sequence[tuple[Marker, TopicPartition]]) -> list[int]:
        """Writes the markers. Returns one code for each, NONE where it is committed."""
        results = _Results(len(due))
        slices = Slices(self._world.clock)
        staged: dict[tuple[Partition, int], list[int]] = {}  # with the drop count of its log: a log may drop it before it is flushed
        at = 0
        async for marker, key in slices.over(due):
            try:
                if key.topic == GROUP_METADATA_TOPIC:
                    led(self._store, image, key.topic, key.partition)
                    _check_has_producer(marker)
                    eager.run(self._groups.write_marker(key.partition, marker), partial(results.note, [at]))
                else:
                    partition = self._stage(image, marker, key)
                    staged.setdefault((partition, partition.log.tail.drop_count), []).append(at)
            except KafkaError as error:
                results.note([at], None, error)
            at += 1
        async for (partition, drop_count), places in slices.over(staged.items()):
            eager.run(partition.flush_until_committed(drop_count), partial(results.note, places))
        limit = self._world.timers.call_later_ms(ANSWERED_WITHIN_MS, results.end)
        await results.known()
        limit.cancel()
        return results.codes

    def _stage(self, image: ClusterImage, marker: Marker, key: TopicPartition) -> Partition:
        if key.topic == TRANSACTION_STATE_TOPIC:  # it is part of no transaction
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = led(self._store, image, key.topic, key.partition)
        _check_has_producer(marker)
        write_marker(partition, partition.led_epoch, marker, self._world.clock.now_ms())
        return partition


def _code_of(error: BaseException | None) -> int:
    if error is None:
        return ErrorCode.NONE
    if not isinstance(error, KafkaError):
        if not isinstance(error, asyncio.CancelledError):  # the node has stopped
            log.error("end_marker_failed", exc_info=error)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # asked again
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NOT_READY else error.code
