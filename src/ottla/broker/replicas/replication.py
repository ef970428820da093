"""What all partitions of a broker share for replication, and who waits for their records to be committed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ottla.broker.replicas.throttles import Throttles
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics import IsrMeters, ReplicationMeters
from ottla.ports import Clock
from ottla.types import TopicPartition


class Deleting(Protocol):
    """A partition that is led here."""

    def look_at_deletions(self) -> None:
        """Requests that wait for its followers to delete records are answered, if they have."""
        ...


@dataclass(slots=True)
class Replication:
    """Of one broker. The node says what becomes of the events; a lone broker has none."""

    node_id: int
    config: BrokerConfig
    clock: Clock
    may_lead: bool = True
    """Whether the image that is followed knows this process: before, it may name it as a leader that it was in an earlier life."""
    may_join: Callable[[int, int], bool] = lambda node, epoch: False
    """Whether the broker, which fetched under that epoch, may be in an ISR."""
    is_live: Callable[[int], bool] = lambda node: False
    """Whether the broker is registered, and not fenced."""
    on_isr_change: Callable[[Any], None] = lambda leading: None
    """The machine of a partition that is led here (``Leading``) has a change to ask the controller for."""
    on_following: Callable[[Any], None] = lambda partition: None
    """The partition (``Partition``) follows another leader than before, or none."""
    on_leading: Callable[[], None] = lambda: None
    """A partition is led by this broker from now on."""
    on_ceased: Callable[[Any], None] = lambda partition: None
    """The partition (``Partition``) was led by this broker until now, and is by another one, or none."""

    deleting: dict[Deleting, None] = field(default_factory=dict)
    """The partitions of which requests wait for followers to delete records."""
    throttles: Throttles = field(init=False)
    isr_meters: IsrMeters = field(default_factory=IsrMeters)
    meters: ReplicationMeters = field(default_factory=ReplicationMeters)

    def brokers_changed(self) -> None:
        """A broker that is not live any more is not waited for."""
        for deleting in list(self.deleting):
            deleting.look_at_deletions()

    def __post_init__(self) -> None:
        self.throttles = Throttles(self.clock, self.config)

    def count_fetched(self, topic: str, index: int, size_bytes: int, *, is_added: bool) -> None:
        """So much of a partition was fetched from its leader; ``is_added``: by a replica that a reassignment adds."""
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
    """Who waits for records to be committed."""

    def on_commit(self, what: Any, error: KafkaError | None) -> None:
        """They are; or it is known why they will not be, or not as promised."""
        ...


class Commits:
    """Who waits for which end offset, in the order of the offsets: each is later than the one before."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, CommitWaiter, Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end_offset: int, waiter: CommitWaiter, what: Any) -> None:
        """``waiter.on_commit(what, ...)`` is called when everything below ``end_offset`` is committed."""
        self._waiting.append((end_offset, waiter, what))

    def advance(self, high_watermark: int, *, is_enough: bool) -> None:
        """NOT_ENOUGH_REPLICAS_AFTER_APPEND for those whose records are committed by too few replicas."""
        waiting = self._waiting
        error = None
        if not is_enough:
            error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "the records are in the log, and too few replicas are in sync")
        while waiting and waiting[0][0] <= high_watermark:
            _, waiter, what = waiting.popleft()
            waiter.on_commit(what, error)

    def fail(self, error: KafkaError) -> None:
        """Nobody learns any more from here whether the records are committed."""
        waiting, self._waiting = self._waiting, deque()
        for _, waiter, what in waiting:
            waiter.on_commit(what, error)


NOBODY: Final = Commits()


async def until_committed(wait: Callable[[CommitWaiter, Any], None]) -> None:
    """What ``wait`` waits for is committed; KafkaError when it will not be here, or by too few replicas."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wait(_Awaited(), done)
    await done


class _Awaited:
    """A ``CommitWaiter`` whose ``what`` is a future."""

    def on_commit(self, what: asyncio.Future[None], error: KafkaError | None) -> None:
        if what.done():  # whoever waited is gone
            return
        if error is None:
            what.set_result(None)
        else:
            what.set_exception(error)
