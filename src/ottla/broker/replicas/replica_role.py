"""The role of this broker's replica of a partition, and the machine that it has in that role.

The image says which role a replica is to have; the replica takes it once its log allows that. A leader epoch starts at the log's end, so
that a replica cannot lead while a write of an earlier epoch is under way (between), or while the log is being cut (cutting).

::

    idle <--> follows --image: leads, log at rest--> leads, leads alone --another leader--> follows, idle
              |  ^   \\                                 ^
      log cut |  |    image: leads, log being written   | the write has ended
              v  |                  v                   |
            cutting --image: leads--> between ----------+

    any --log failed, or deleted--> offline, for good: a directory that is back has new partitions

Source: KIP-101, KIP-320, KIP-966.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.broker.replicas.replication import NOBODY, Led, Replication
from ottla.broker.tasks import eager
from ottla.errors import KafkaError
from ottla.loggers import get_logger
from ottla.metadata.image import PartitionImage
from ottla.types import NO_EPOCH, NO_LEADER

if TYPE_CHECKING:
    from ottla.broker.replicas.leading import Leading
    from ottla.replication.follower import Followed
    from ottla.replication.high_watermark import HighWatermark

log = get_logger(__name__)


class Role(Enum):
    """The value is the name in texts."""

    IDLE = "idle"
    """Leads nothing and follows no broker: the image names no leader, or this process before it may lead, or not this broker's replica."""
    LEADS_ALONE = "leads alone"
    """Leads a partition of one replica: what is in the log is committed."""
    LEADS = "leads"
    """Leads a partition of several replicas; ``leading`` knows the followers."""
    FOLLOWS = "follows"
    """Another broker leads; ``followed`` knows what it has said."""
    BETWEEN = "between"
    """Is to lead once the write of an earlier epoch has ended. Nothing is staged."""
    CUTTING = "cutting"
    """The log is being cut. Nothing is staged; ``followed`` is whom the image names meanwhile, if another broker."""
    OFFLINE = "offline"
    """The log has failed, or the partition was deleted."""


LEADING: Final = frozenset({Role.LEADS_ALONE, Role.LEADS})
_AS_THE_IMAGE_SAYS: Final = frozenset({Role.IDLE, Role.FOLLOWS, Role.BETWEEN, *LEADING})

TRANSITIONS: Final[dict[Role, frozenset[Role]]] = {
    Role.IDLE: _AS_THE_IMAGE_SAYS | {Role.OFFLINE},
    Role.LEADS_ALONE: _AS_THE_IMAGE_SAYS | {Role.OFFLINE},
    Role.LEADS: _AS_THE_IMAGE_SAYS | {Role.OFFLINE},
    Role.FOLLOWS: _AS_THE_IMAGE_SAYS | {Role.CUTTING, Role.OFFLINE},
    Role.BETWEEN: _AS_THE_IMAGE_SAYS | {Role.OFFLINE},
    Role.CUTTING: frozenset({Role.CUTTING, Role.IDLE, Role.FOLLOWS, Role.BETWEEN, Role.OFFLINE}),
    Role.OFFLINE: frozenset(),
}
"""A role may follow itself: in a newer epoch, under another leader, while a cut goes on."""


class Replica(Led, Protocol):
    """The partition whose role this is."""

    async def sync(self) -> None:
        """Makes what was in the log before the call durable."""
        ...

    def not_leader(self) -> KafkaError:
        """Returns NOT_LEADER_OR_FOLLOWER, with the reason."""
        ...


class ReplicaRole:
    """The role of one replica; IDLE before the first image."""

    __slots__ = (
        "_after_writes", "_handed_over", "_image", "_is_replica", "_is_to_lead", "_partition", "_replication", "cutting", "ended_at",
        "followed", "kind", "leader_epoch", "leading", "led_epoch", "on_change",
    )  # fmt: skip

    def __init__(
        self,
        partition: Replica,
        replication: Replication,
        after_writes: Callable[[Callable[[], Coroutine[Any, Any, None]]], Any],
        on_change: Callable[[Any], None] = lambda partition: None,
    ) -> None:
        """Makes an idle role; ``after_writes`` runs a coroutine when nothing is being written to the partition's log.

        ``on_change`` is called when the partition (``Partition``) has another role, has started to lead, or was deleted.
        """
        self._partition = partition
        self._replication = replication
        self._after_writes = after_writes
        self._image: PartitionImage | None = None
        self.leader_epoch = NO_EPOCH  # as the image has it, whichever broker leads
        self._is_to_lead = False  # as the image has it, once this process may lead
        self._is_replica = False  # as the image has it; one that is removed is deleted soon, and must not pass for one that is added again
        self.kind = Role.IDLE  # changes with the next three, in ``_become`` alone
        self.led_epoch = NO_EPOCH  # ``leader_epoch`` while this broker leads
        self.leading: Leading | None = None
        self.followed: Followed | None = None
        self.cutting: asyncio.Event | None = None  # set when the cut is over
        self.ended_at = 0  # the log's drop count when the last epoch ended
        self._handed_over = NOBODY  # requests that wait for records of an earlier epoch that this broker led
        self.on_change = on_change

    def take(self, image: PartitionImage) -> bool:
        """Takes the role that the image says, or the role that precedes it. Returns whether the epoch or the leader has changed.

        What waits under the earlier epoch is answered. Acknowledgements wait on when this broker leads the next epoch, too: as in Kafka,
        its clients need not know of that.
        """
        is_to_lead = image.leader == self._replication.node_id and self._replication.may_lead
        is_replica = self._replication.node_id in image.replicas
        self._image = image
        if (image.leader_epoch, is_to_lead, is_replica) == (self.leader_epoch, self._is_to_lead, self._is_replica):
            self._keep(image)
            return False
        if self._is_to_lead and not is_to_lead:
            self._replication.on_ceased(self._partition)
        self.leader_epoch, self._is_to_lead, self._is_replica = image.leader_epoch, is_to_lead, is_replica
        if self.leading is not None:
            self._handed_over = self.leading.hand_over()
        self._end_machines(self._partition.not_leader())
        if not is_to_lead:
            self._handed_over.fail(self._partition.not_leader())
        tail = self._partition.log.tail
        tail.drop_unwritten()
        self.ended_at = tail.drop_count
        self._enter(image)
        self.on_change(self._partition)
        return True

    def take_again(self) -> bool:
        """Takes the newest image again, as ``take`` does, now that this process may lead, or may not."""
        return self._image is not None and self.take(self._image)

    def is_adding(self, node: int) -> bool:
        """True when a reassignment adds that replica."""
        return self._image is not None and node in self._image.adding

    @property
    def is_in_sync(self) -> bool:
        """Whether this replica is in sync, as the image has it."""
        return self._image is not None and self._replication.node_id in self._image.isr

    @property
    def is_end_known(self) -> bool:
        """Whether nothing is being written to the log, or cut from it."""
        return self.cutting is None and not self._partition.log.tail.has_unwritten

    def begin_cut(self) -> None:
        """Starts a cut, which changes the log's end: until ``end_cut`` nothing is led, and nothing is appended."""
        self.cutting = asyncio.Event()
        self._become(Role.CUTTING, followed=self.followed)

    def end_cut(self) -> None:
        """Ends the cut: the log ends where it does, durably."""
        assert self.cutting is not None, "a cut that ends has begun"
        self.cutting.set()
        self.cutting = None
        if self.kind is Role.CUTTING:  # else it went offline meanwhile
            self._precede(self.followed)

    def go_offline(self, error: KafkaError, *, is_deleted: bool = False) -> None:
        """Takes the partition offline: requests that wait for it are answered with the error."""
        self._end_machines(error)
        self._handed_over.fail(self._partition.not_leader())
        if is_deleted:
            self._is_to_lead = False
        if self.kind is not Role.OFFLINE:
            self._become(Role.OFFLINE)

    # -- from role to role

    def _keep(self, image: PartitionImage) -> None:
        """Keeps the role in the same epoch; which brokers have the partition may have changed."""
        if self.leading is not None:
            self.leading.on_image(image)
        elif self.kind is Role.LEADS_ALONE and len(image.replicas) > 1:
            start = self._partition.log.epochs.start_of(self.led_epoch)
            self._lead_several(image, NOBODY, self._partition.log.log_end_offset if start is None else start)

    def _enter(self, image: PartitionImage) -> None:
        followed, shared = None, self._replication
        if self._is_replica and image.leader not in (NO_LEADER, shared.node_id):
            followed = _followed(image, self._partition.committed, shared)
        if self.kind is Role.OFFLINE:
            return
        if self.kind is Role.CUTTING:
            self._become(Role.CUTTING, followed=followed)
        elif self._is_to_lead and not self._partition.log.tail.is_flushing:
            self._lead(image)
        else:
            self._precede(followed)

    def _precede(self, followed: Followed | None) -> None:
        """Takes the role in which nothing is led yet."""
        if not self._is_to_lead:
            self._become(Role.IDLE if followed is None else Role.FOLLOWS, followed=followed)
            return
        self._become(Role.BETWEEN)
        eager.run(self._after_writes(self._lead_now), _note_end)

    async def _lead_now(self) -> None:
        if self.kind is Role.BETWEEN and self._image is not None:
            self._lead(self._image)
        self.on_change(self._partition)

    def _lead(self, image: PartitionImage) -> None:
        """Starts the epoch at the log's end."""
        partition = self._partition
        end_offset = partition.log.log_end_offset
        partition.log.enter_epoch(self.leader_epoch)
        waiting, self._handed_over = self._handed_over, NOBODY
        if len(image.replicas) == 1:
            partition.committed.raise_to(end_offset)
            self._become(Role.LEADS_ALONE)
            waiting.advance(end_offset, is_enough=True)
        else:
            self._lead_several(image, waiting, end_offset)
            if partition.log.durability.owes_sync:  # until then it is not committed, and there may be no next record to sync it with
                eager.run(partition.sync(), _note_end)

    def _lead_several(self, image: PartitionImage, waiting: Any, epoch_start_offset: int) -> None:
        from ottla.broker.replicas.leading import Leading  # a lone broker starts without it

        leading = Leading(self._partition, image, self._replication, epoch_start_offset=epoch_start_offset, waiting=waiting)
        self._become(Role.LEADS, leading=leading)
        leading.answer_committed()

    def _end_machines(self, error: KafkaError) -> None:
        """Ends the machine of a role that has ended: a late answer to it moves nothing."""
        if self.leading is not None:
            self.leading.end(error)
        if self.followed is not None:
            self.followed.end()

    def _become(self, kind: Role, *, leading: Leading | None = None, followed: Followed | None = None) -> None:
        assert kind in TRANSITIONS[self.kind], f"a replica that is {self.kind.value} becomes {kind.value}"
        assert (leading is not None) == (kind is Role.LEADS), "a leader of several replicas knows them"
        assert followed is None or kind in (Role.FOLLOWS, Role.CUTTING), "only a follower follows"
        assert followed is not None or kind is not Role.FOLLOWS, "a follower knows its leader"
        assert (self.cutting is not None) == (kind is Role.CUTTING) or kind is Role.OFFLINE, "a cut has one role"
        self.kind, self.leading, self.followed = kind, leading, followed
        self.led_epoch = self.leader_epoch if kind in LEADING else NO_EPOCH


def _followed(image: PartitionImage, committed: HighWatermark, shared: Replication) -> Followed:
    from ottla.replication.follower import Followed  # a lone broker starts without it

    return Followed(image.leader, image.leader_epoch, committed=committed, backoff_ms=shared.backoff_ms)


def _note_end(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("leadership_not_taken_up", exc_info=error)
