"""What all partitions of a broker share for replication, and who waits for their records to be committed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.broker.part import Part
from ottla.broker.replicas.throttles import Throttles
from ottla.broker.replicas.unread import Unread
from ottla.broker.replicas.waiting import AT_ONCE
from ottla.config import BrokerConfig
from ottla.config.keys.cluster import RACK_AWARE
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metrics import DamageMeters, IsrMeters, ReplicationMeters
from ottla.ports import Clock
from ottla.replication.high_watermark import HighWatermark
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

CEASED_MS: Final = 10_000
"""So long after it ceased to lead a broker is asked by clients that have not heard of that."""


class Led(Protocol):
    """A partition of several replicas that is led here."""

    topic: str
    topic_id: bytes
    index: int
    committed: HighWatermark
    log: PartitionLog
    unread: Unread

    def wake(self, size_bytes: int) -> None:
        """Notifies consumers of so many bytes more; with 0, their next fetch has something else to report."""
        ...

    def tell_followers(self, size_bytes: int = 0) -> None:
        """Notifies followers of so many bytes more; with 0, their next fetch has something else to report."""
        ...


class Deleting(Protocol):
    """A partition that is led here."""

    def look_at_deletions(self) -> None:
        """Answers requests that wait for its followers to delete records, if they have."""
        ...


class Replication(Part):
    """The things that the replicas of one broker share. ``others`` gives the brokers that may have other replicas of its partitions.

    ``is_known`` says whether an image knows this process: one that does not may name it as a leader that it was in an earlier life.
    """

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        clock: Clock,
        others: Callable[[], Mapping[int, BrokerImage]] = dict,
        is_known: Callable[[ClusterImage], bool] = lambda image: True,
        *,
        may_lead: bool = True,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.clock = clock
        self._others = others
        self._is_known = is_known
        self.may_lead = may_lead
        """Whether the image that is followed knows this process."""
        self.followed_brokers: Mapping[int, BrokerImage] = {}
        """The brokers of the image that is followed."""
        self.on_isr_change: Callable[[Any], None] = lambda leading: None
        """The machine of a partition that is led here (``Leading``) has a change to ask the controller for."""
        self.on_suspect: Callable[[Any, int, str], None] = lambda partition, offset, reader: None
        """The reader asks again and again for what it was sent from that offset of a partition (``Partition``) that is led here."""
        self.ceased: dict[TopicPartition, int] = {}
        """When this broker ceased to lead the partition, oldest first; for ``CEASED_MS``."""
        self.deleting: dict[Deleting, None] = {}
        """The partitions of which requests wait for followers to delete records."""
        self.throttles: Final = Throttles(clock, config)
        self.high_watermark_size: Final = AT_ONCE if config["replica.selector.class"] == RACK_AWARE else 0
        """What ``tell_followers`` says of a high watermark that has moved: followers that consumers read from learn it at once."""
        self.isr_meters: Final = IsrMeters()
        self.meters: Final = ReplicationMeters()
        self.damage: Final = DamageMeters()

    async def on_image(self, delta: ImageDelta) -> None:
        """Takes a newer image: this process leads nothing before the image knows it."""
        self.may_lead = self._is_known(delta.new)
        self.followed_brokers = delta.new.brokers
        self.brokers_changed()

    def brokers_changed(self) -> None:
        """Looks at deletions again: a broker that is no longer live is not waited for."""
        for deleting in list(self.deleting):
            deleting.look_at_deletions()

    def may_join(self, node: int, epoch: int) -> bool:
        """True when the broker, which fetched under that epoch, may be in an ISR."""
        broker = self._others().get(node)
        return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown and epoch in (-1, broker.broker_epoch)

    def is_live(self, node: int) -> bool:
        """True when the broker is registered, and not fenced."""
        broker = self._others().get(node)
        return broker is not None and not broker.is_fenced

    def on_ceased(self, partition: Any) -> None:
        """Notes that this broker led the partition (``Partition``) until now, and another one leads it, or none."""
        ceased = self.ceased
        ceased.pop(partition.key, None)
        now_ms = ceased[partition.key] = self.clock.monotonic_ms()
        while now_ms - next(iter(ceased.values())) >= CEASED_MS:
            del ceased[next(iter(ceased))]

    def count_fetched(self, topic: str, index: int, size_bytes: int, *, is_added: bool) -> None:
        """Counts what was fetched of a partition from its leader; ``is_added``: by a replica that a reassignment adds."""
        self.meters.bytes_in += size_bytes
        if is_added:
            self.meters.reassignment_bytes_in += size_bytes
        throttle = self.throttles.follower
        if throttle.topics and throttle.is_throttled(TopicPartition(topic, index)):
            throttle.record(size_bytes)

    @property
    def lag_ms_max(self) -> int:
        value: int = self.config["replica.lag.time.max.ms"]
        return value

    @property
    def backoff_ms(self) -> int:
        value: int = self.config["replica.fetch.backoff.ms"]
        return value


class CommitWaiter(Protocol):
    """A request that waits for records to be committed."""

    def on_commit(self, what: Any, error: KafkaError | None) -> None:
        """Reports that the records are committed; or why they will not be, or not as promised."""
        ...


class Commits:
    """The requests that wait for commits, each for a later end offset than the one before."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, CommitWaiter, Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end_offset: int, waiter: CommitWaiter, what: Any) -> None:
        """Calls ``waiter.on_commit(what, ...)`` when everything below ``end_offset`` is committed."""
        self._waiting.append((end_offset, waiter, what))

    def advance(self, high_watermark: int, *, is_enough: bool) -> None:
        """Answers the waiters below the high watermark; NOT_ENOUGH_REPLICAS_AFTER_APPEND where too few replicas have the records."""
        waiting = self._waiting
        error = None
        if not is_enough:
            error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "the records are in the log, and too few replicas are in sync")
        while waiting and waiting[0][0] <= high_watermark:
            _, waiter, what = waiting.popleft()
            waiter.on_commit(what, error)

    def fail(self, error: KafkaError) -> None:
        """Fails the waiting requests: this replica no longer reports whether the records are committed."""
        waiting, self._waiting = self._waiting, deque()
        for _, waiter, what in waiting:
            waiter.on_commit(what, error)


NOBODY: Final = Commits()


async def until_committed(wait: Callable[[CommitWaiter, Any], None]) -> None:
    """Waits until it is committed; KafkaError when it will not be here, or by too few replicas."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wait(_Awaited(), done)
    await done


class _Awaited:
    """A ``CommitWaiter`` whose ``what`` is a future."""

    def on_commit(self, what: asyncio.Future[None], error: KafkaError | None) -> None:
        if what.done():  # the caller no longer waits
            return
        if error is None:
            what.set_result(None)
        else:
            what.set_exception(error)
