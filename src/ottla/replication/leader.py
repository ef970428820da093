"""The leader of one partition: how far its followers are, which replicas are in sync, and how far it is safe to read.

The ISR is what the controller has recorded. The leader asks for a change, which takes effect when the controller has answered. Until then
the *maximal* ISR counts: the recorded one, and the replicas that are about to join (KIP-497). The high watermark is the smallest end offset
among the maximal ISR and the caught-up replicas that may join it soon; under one leader it never goes back. It moves only while the ISR has
``min.insync.replicas`` members (KIP-966), or as many as the partition has replicas, if those are fewer.

A follower leaves the ISR when it has not been caught up for ``replica.lag.time.max.ms``, whatever it fetches meanwhile. It joins once it
has reached the high watermark and the offset at which the leader's epoch started: below that there may be committed records that the
follower lacks. Its log must also start no earlier than the leader's, if records were deleted for good while it was away: it may lead next.
Source: KIP-101, KIP-107, KIP-497, KIP-841 (fenced and stopping brokers), KIP-903 (broker epochs), KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionImage
from ottla.replication.high_watermark import HighWatermark
from ottla.types import NO_OFFSET

MayJoin = Callable[[int, int], bool]
"""True when the broker, which fetched under that epoch (-1: it did not say), serves, is not stopping, and still has that epoch."""

Kept = Callable[[], int]
"""The offset up to which the leader has synced its own log as the topic demands (``flush.messages``): records that it may still lose are
not committed.
"""

IsLive = Callable[[int], bool]
"""Whether the broker is registered, and not fenced."""

_NOT_APPLIED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_NEWER_IMAGE_COMES: Final = frozenset(
    {
        *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH),
        *(ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED),
    }
)


NEVER_ENDS: Final = 2**63
_NEVER_MS: Final = -(2**62)


def _everything() -> int:
    return NEVER_ENDS


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A requested change of the ISR. Each member has the broker epoch of its last fetch, -1 where that is unknown."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    before: tuple[int, ...] = field(default=(), compare=False)
    """The ISR that it replaces."""


class FetchTimes:
    """The time of a follower's last fetch in a session of many partitions; it applies to all partitions at rest, without a look at each."""

    __slots__ = ("fetched_ms",)

    def __init__(self) -> None:
        self.fetched_ms = 0


class FollowerState:
    """The leader's knowledge of one follower. ``end_offset`` is -1 before its first fetch of this epoch.

    It is *at rest* while it has everything, and every fetch of its session says so again.
    """

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end_offset", "rests_with", "start_offset")

    def __init__(self, *, caught_up_ms: int) -> None:
        self.end_offset = NO_OFFSET
        self.start_offset = NO_OFFSET
        self.broker_epoch = -1
        self.caught_up_ms = caught_up_ms  # when it last had everything
        self.fetched_ms = 0  # its last fetch, and where the log ended then
        self.leader_end_offset = NO_OFFSET
        self.rests_with: FetchTimes | None = None

    def is_caught_up(self, end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        caught_up_ms = self.caught_up_ms if self.rests_with is None else max(self.caught_up_ms, self.rests_with.fetched_ms)
        return self.end_offset == end_offset or now_ms - caught_up_ms <= lag_ms_max

    def stir(self) -> None:
        """Ends the follower's rest: the leader's log may have grown, or the session is over. Until its last fetch it had everything."""
        if self.rests_with is not None:
            self.caught_up_ms = self.fetched_ms = max(self.caught_up_ms, self.rests_with.fetched_ms)
            self.leader_end_offset = self.end_offset
            self.rests_with = None


class Leader:
    """The leader of one partition in one epoch. Each call gets the offsets of the log, which belongs to the owner."""

    __slots__ = (
        "_committed", "_deleted_offset", "_kept", "_lag_ms_max", "_lost", "_may_join", "_node_id", "_proposed", "change",
        "epoch_start_offset", "followers", "isr", "leader_epoch", "min_isr", "partition_epoch",
    )  # fmt: skip

    def __init__(
        self,
        node_id: int,
        image: PartitionImage,
        *,
        epoch_start_offset: int,
        start_offset: int = 0,
        end_offset: int,
        committed: HighWatermark,
        min_isr: int,
        lag_ms_max: int,
        may_join: MayJoin,
        kept: Kept = _everything,
        now_ms: int,
    ) -> None:
        """Makes an elected leader. ``committed`` is the partition's high watermark, as this replica knows it; replicas in sync count as
        caught up until now.

        What earlier leaders have deleted for good is below ``start_offset``, the log's.
        """
        assert committed.offset <= end_offset, "the high watermark is within the log"
        self._node_id: Final = node_id
        self._may_join: Final = may_join
        self._kept: Final = kept
        self._lag_ms_max = lag_ms_max
        self.leader_epoch: Final = image.leader_epoch
        self.epoch_start_offset: Final = epoch_start_offset
        self._deleted_offset = start_offset
        self.partition_epoch = image.partition_epoch
        self.min_isr = min_isr  # as the topic is configured
        self.isr = image.isr
        self._lost = image.lost_replicas
        self._proposed: tuple[int, ...] | None = None  # what the controller was asked for, and has not answered
        self.change: IsrChange | None = None
        """A change to be sent to the controller; ``take_change`` takes it."""
        self._committed = committed
        caught_up_ms = {node: now_ms if node in self.isr else now_ms - 2 * lag_ms_max for node in image.replicas if node != node_id}
        self.followers = {node: FollowerState(caught_up_ms=caught_up_ms[node]) for node in caught_up_ms}
        assert node_id in self.isr, "the leader is in the ISR"
        self.advance(end_offset, now_ms)

    @property
    def high_watermark(self) -> int:
        return self._committed.offset

    def end(self) -> None:
        """Ends the epoch: a late answer moves nothing."""
        self._committed = self._committed.detached()

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR, with all replicas that may be in it by now, as far as this leader knows."""
        if self._proposed is None:
            return self.isr
        return (*self.isr, *(node for node in self._proposed if node not in self.isr))

    @property
    def knows_what_is_committed(self) -> bool:
        """Whether the high watermark again covers all that earlier leaders committed: before, it may be lower than they announced."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def is_changing(self) -> bool:
        """Whether the controller was asked for another ISR, and has not answered."""
        return self._proposed is not None

    @property
    def effective_min_isr(self) -> int:
        return min(self.min_isr, len(self.followers) + 1)

    def check_enough_in_sync(self) -> None:
        """Raises NOT_ENOUGH_REPLICAS unless acks=all may be promised."""
        if len(self.isr) < self.effective_min_isr:
            text = f"{len(self.isr)} of {len(self.followers) + 1} replicas are in sync, min.insync.replicas={self.min_isr}"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    # -- followers

    def on_fetch(self, node: int, *, broker_epoch: int, offset: int, start_offset: int, end_offset: int, now_ms: int) -> bool:
        """Takes the fetch of a follower whose log agrees with this one up to ``offset``. True when the high watermark has moved.

        NOT_LEADER_OR_FOLLOWER for a broker that is no replica, as far as is known here, and for an earlier process of the broker.
        """
        follower = self.followers.get(node)
        if follower is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} is no replica in leader epoch {self.leader_epoch}")
        assert offset <= end_offset, "a follower that has more than its leader has diverged"
        if -1 < broker_epoch < follower.broker_epoch:
            text = f"broker {node} has registered again since: epoch {broker_epoch} is older than {follower.broker_epoch}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        follower.stir()
        if offset >= end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_offset >= 0:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        before = follower.end_offset
        follower.end_offset, follower.start_offset, follower.broker_epoch = offset, start_offset, broker_epoch
        follower.fetched_ms, follower.leader_end_offset = now_ms, end_offset
        if node not in self.isr and self._proposed is None and self._is_in_sync(follower) and self._may_join_now(node, broker_epoch):
            self._propose((*self.isr, node))
        return offset != before and self.advance(end_offset, now_ms)

    def lags(self, start_offset: int, end_offset: int) -> dict[int, int]:
        """Returns how many offsets of the log each follower lacks; all of them for one that has not fetched in this epoch."""
        return {node: end_offset - max(follower.end_offset, start_offset) for node, follower in self.followers.items()}

    def holders_of(self, offset: int) -> dict[int, int]:
        """Returns followers in sync whose log reaches from that offset, or from before it, to it at least; and where it ends."""
        known = ((node, self.followers[node]) for node in self.isr if node in self.followers)
        return {node: follower.end_offset for node, follower in known if follower.start_offset <= offset <= follower.end_offset}

    def rest(self, node: int, times: FetchTimes, *, end_offset: int, start_offset: int) -> bool:
        """True when the follower is at rest from now on: it is in sync, has everything, and reports ``start_offset`` as its own."""
        follower = self.followers.get(node)
        if follower is None or node not in self.isr or (follower.end_offset, follower.start_offset) != (end_offset, start_offset):
            return False
        follower.rests_with = times
        return True

    def stir(self, node: int, times: FetchTimes) -> None:
        """Ends the follower's rest, if it was at rest by that session."""
        follower = self.followers.get(node)
        if follower is not None and follower.rests_with is times:
            follower.stir()

    def _is_in_sync(self, follower: FollowerState) -> bool:
        if follower.end_offset < self.high_watermark or follower.end_offset < self.epoch_start_offset:
            return False
        return follower.start_offset >= self._deleted_offset or follower.start_offset == NO_OFFSET

    def advance(self, end_offset: int, now_ms: int) -> bool:
        """Takes the log's end, or a follower's move: True when the high watermark has moved, too."""
        if len(self.isr) < self.effective_min_isr:
            return False
        high_watermark, maximal_isr = min(end_offset, self._kept()), self.maximal_isr
        for node, follower in self.followers.items():
            if follower.end_offset < high_watermark and (node in maximal_isr or self._is_about_to_join(node, follower, end_offset, now_ms)):
                high_watermark = follower.end_offset
        return self._committed.raise_to(high_watermark)

    def _is_about_to_join(self, node: int, follower: FollowerState, end_offset: int, now_ms: int) -> bool:
        """True when the follower is about to join: the high watermark must not run ahead of it, or it would never reach it."""
        return follower.is_caught_up(end_offset, now_ms, self._lag_ms_max) and self._may_join_now(node, follower.broker_epoch)

    def _may_join_now(self, node: int, broker_epoch: int) -> bool:
        """True when the replica may join, and its broker has not given it up: a lost replica would hold everything back."""
        return node not in self._lost and self._may_join(node, broker_epoch)

    def look_for_laggards(self, end_offset: int, now_ms: int) -> None:
        """Asks the controller to take the replicas that have not been caught up for too long out of the ISR."""
        if self._proposed is not None:
            return
        kept = tuple(
            node for node in self.isr if node == self._node_id or self._followed_by(node).is_caught_up(end_offset, now_ms, self._lag_ms_max)
        )
        if kept != self.isr:
            self._propose(kept)

    def _followed_by(self, node: int) -> FollowerState:
        follower = self.followers.get(node)
        assert follower is not None, "the ISR is within the replicas"
        return follower

    def low_watermark(self, start_offset: int, is_live: IsLive) -> int:
        """Returns the offset below which every live replica has deleted its records, as far as is known; the leader starts at
        ``start_offset``.

        -1 while a live replica has not fetched. One whose broker is gone or fenced counts again when it is back.
        """
        return min([start_offset, *(follower.start_offset for node, follower in self.followers.items() if is_live(node))])

    def deleted(self, offset: int) -> None:
        """Notes that records below are deleted on every live replica, which a client may learn."""
        self._deleted_offset = max(self._deleted_offset, offset)

    # -- the ISR

    def _propose(self, isr: tuple[int, ...]) -> None:
        self._proposed = isr
        epochs = {node: follower.broker_epoch for node, follower in self.followers.items()}
        self.change = IsrChange(self.leader_epoch, self.partition_epoch, tuple((node, epochs.get(node, -1)) for node in isr), self.isr)

    def take_change(self) -> IsrChange | None:
        """Returns what the controller is to be asked for now, once."""
        change, self.change = self.change, None
        return change

    def on_changed(self, change: IsrChange, *, partition_epoch: int, isr: Iterable[int], end_offset: int, now_ms: int) -> bool:
        """Takes the ISR that the controller has recorded after ``change``. True when the high watermark has moved."""
        if not self._is_pending(change) or partition_epoch < self.partition_epoch:
            return False
        self.isr, self.partition_epoch, self._proposed = tuple(isr), partition_epoch, None
        return self.advance(end_offset, now_ms)

    def on_refused(self, change: IsrChange, error: ErrorCode) -> bool:
        """Takes a refusal, or the loss of the answer: True when the controller is to be asked again.

        A change that certainly was not applied is taken back. One that may have been applied stays in the maximal ISR, until a newer image
        decides.
        """
        if not self._is_pending(change):
            return False
        if error == ErrorCode.INELIGIBLE_REPLICA:  # its disk is full, or its broker fenced: it has yet to come again
            for node in set(self._proposed or ()).difference(self.isr):
                self._followed_by(node).caught_up_ms = _NEVER_MS
        if error in _NOT_APPLIED:
            self._proposed = None
        return error not in _NOT_APPLIED and error not in _NEWER_IMAGE_COMES

    def _is_pending(self, change: IsrChange) -> bool:
        return self._proposed is not None and (change.leader_epoch, change.partition_epoch) == (self.leader_epoch, self.partition_epoch)

    def on_image(self, image: PartitionImage, *, end_offset: int, now_ms: int) -> bool:
        """Takes the metadata's state of the partition, in the same leader epoch. True when the high watermark has moved."""
        if image.partition_epoch < self.partition_epoch:
            return False
        if image.partition_epoch > self.partition_epoch:
            self._proposed = self.change = None
        behind_ms = now_ms - 2 * self._lag_ms_max
        for node in set(self.isr).difference(image.isr) & self.followers.keys():  # it has yet to come again
            self.followers[node].stir()
            self.followers[node].caught_up_ms = behind_ms
            self.followers[node].leader_end_offset = NO_OFFSET  # nor does a fetch count that was on its way
        self.partition_epoch, self.isr, self._lost = image.partition_epoch, image.isr, image.lost_replicas
        others = [node for node in image.replicas if node != self._node_id]
        self.followers = {node: self.followers.get(node) or FollowerState(caught_up_ms=behind_ms) for node in others}
        return self.advance(end_offset, now_ms)
