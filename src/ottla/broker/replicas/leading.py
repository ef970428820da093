"""A partition of several replicas, led here: what its followers have moves the high watermark, and those who wait for it are answered.

The rules are the machine's (``replication/leader.py``); the log's end and the time come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.broker.replicas.deletions import Deletion, Deletions
from ottla.broker.replicas.replication import NOBODY, Commits, CommitWaiter, Led, Replication
from ottla.broker.replicas.resent import Resent
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionImage
from ottla.replication.leader import NEVER_ENDS, IsrChange, Leader
from ottla.types import TopicPartition


class Leading:
    """The leadership of one epoch. ``end`` answers the requests that still wait for a commit."""

    __slots__ = ("_announced", "_clock", "_commits", "_deletions", "_partition", "_replication", "_resent", "has_ended", "machine")

    def __init__(
        self, partition: Led, image: PartitionImage, replication: Replication, *, epoch_start_offset: int, waiting: Commits = NOBODY
    ) -> None:
        self._partition = partition
        self._clock = replication.clock
        self._replication = replication
        self._commits = waiting if waiting else Commits()
        self._deletions = Deletions()
        self.has_ended = False
        end_offset, known = partition.log.log_end_offset, partition.committed.offset
        partition.unread.begin(known, end_offset)
        partition.committed.raise_to(partition.log.log_start_offset)  # what was deleted was committed
        partition.committed.cut_to(end_offset)
        self.machine = Leader(
            replication.node_id,
            image,
            epoch_start_offset=epoch_start_offset,
            start_offset=partition.log.log_start_offset,
            end_offset=end_offset,
            committed=partition.committed,
            min_isr=partition.log.config.min_insync_replicas,
            lag_ms_max=replication.lag_ms_max,
            may_join=replication.may_join,
            kept=self._kept,
            now_ms=self._clock.monotonic_ms(),
        )
        self._announced = self.machine.high_watermark  # as those who wait know it
        self._resent = Resent(self._clock)

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and index."""
        return self._partition.topic_id, self._partition.index

    @property
    def name(self) -> str:
        return f"{self._partition.topic}-{self._partition.index}"

    @property
    def _end_offset(self) -> int:
        return self._partition.log.log_end_offset

    def _kept(self) -> int:
        durability = self._partition.log.durability
        return durability.recovery_point if durability.owes_sync else NEVER_ENDS

    def grew(self, size_bytes: int) -> None:
        """Notes that the log has so much more."""
        self._partition.unread.grew(self._end_offset, size_bytes)
        if self.machine.advance(self._end_offset, self._clock.monotonic_ms()):
            self.committed()

    def on_follower_fetch(self, node: int, *, broker_epoch: int, offset: int, start_offset: int) -> bool:
        """Notes that a follower has everything below ``offset``. True when the high watermark has moved: ``committed`` is to be called
        then.

        Also when requests wait for records to be deleted, and the follower's log may start elsewhere by now. NOT_LEADER_OR_FOLLOWER for a
        broker that is no replica.
        """
        now_ms, machine = self._clock.monotonic_ms(), self.machine
        has_moved = machine.on_fetch(
            node, broker_epoch=broker_epoch, offset=offset, start_offset=start_offset, end_offset=self._end_offset, now_ms=now_ms
        )
        if machine.change is not None:
            self._replication.on_isr_change(self)
        return has_moved or len(self._deletions) > 0

    def lags(self) -> dict[int, int]:
        """Returns how many offsets of the log each follower lacks, as far as it has said."""
        return self.machine.lags(self._partition.log.log_start_offset, self._end_offset)

    def sent(self, node: int, offset: int) -> None:
        """Notes from where a follower is sent records."""
        if self._resent.to_follower(node, offset):
            self._replication.on_suspect(self._partition, offset, f"broker {node}")

    def sent_to_consumer(self, client_id: str, offset: int) -> None:
        """Notes from where a consumer is sent records."""
        suspect = self._resent.to_consumer(client_id, offset)
        if suspect is not None:
            self._replication.on_suspect(self._partition, suspect, f"client {client_id!r}")

    def look_for_laggards(self) -> None:
        """Asks for an ISR without followers that have not kept up; one outside it that kept up until now is no longer waited for."""
        now_ms = self._clock.monotonic_ms()
        self.machine.look_for_laggards(self._end_offset, now_ms)
        if self.machine.advance(self._end_offset, now_ms):
            self.committed()
        if self.machine.change is not None:
            self._replication.on_isr_change(self)

    def set_min_isr(self, count: int) -> None:
        """Sets how many replicas are enough; what a lower number commits is committed now."""
        self.machine.min_isr = count
        if self.machine.advance(self._end_offset, self._clock.monotonic_ms()):
            self.committed()

    def on_image(self, image: PartitionImage) -> None:
        """Takes an image of the same epoch; which brokers have the partition, and which are in sync, may have changed."""
        has_moved = self.machine.on_image(image, end_offset=self._end_offset, now_ms=self._clock.monotonic_ms())
        self._partition.tell_followers()
        if has_moved or self._deletions:
            self.committed()

    def on_isr_changed(self, change: IsrChange, *, partition_epoch: int, isr: Sequence[int]) -> None:
        """Takes what the controller has recorded as asked."""
        now_ms = self._clock.monotonic_ms()
        if self.machine.on_changed(change, partition_epoch=partition_epoch, isr=isr, end_offset=self._end_offset, now_ms=now_ms):
            self.committed()
        self._partition.tell_followers()

    def on_isr_refused(self, change: IsrChange, error: ErrorCode) -> bool:
        """Takes a refusal of the controller, or the loss of its answer: True when it is to be asked again.

        The replicas that it asked for are no longer waited for: records that waited for them alone are committed. No other event may do so
        for seconds, where all followers have everything, and rest.
        """
        is_asked_again = self.machine.on_refused(change, error)
        if self.machine.advance(self._end_offset, self._clock.monotonic_ms()):
            self.committed()
        return is_asked_again

    def committed(self) -> None:
        """Answers the requests that wait for the high watermark, or the low one, which has moved."""
        machine, partition = self.machine, self._partition
        if self.has_ended:
            return
        has_moved = self._announced != machine.high_watermark
        if has_moved:
            self._announced = machine.high_watermark
            partition.tell_followers(self._replication.high_watermark_size)
        self.answer_committed()
        if has_moved:
            partition.wake(partition.unread.take(machine.high_watermark))
        if self._deletions:
            self.look_at_deletions()

    def answer_committed(self) -> None:
        """Answers the requests that wait for what is committed by now."""
        machine = self.machine
        self._commits.advance(machine.high_watermark, is_enough=len(machine.maximal_isr) >= machine.effective_min_isr)

    def wait_for_commit(self, end_offset: int, waiter: CommitWaiter, what: Any) -> None:
        """Calls ``waiter.on_commit`` when everything below ``end_offset`` is committed, or never will be here."""
        self._commits.wait(end_offset, waiter, what)
        if self.machine.high_watermark >= end_offset:
            self.committed()

    @property
    def is_throttled(self) -> bool:
        """Whether what followers are sent counts for the rate of throttled replicas."""
        throttle = self._replication.throttles.leader
        return bool(throttle.topics) and throttle.is_throttled(TopicPartition(self._partition.topic, self._partition.index))

    def holds_back(self, node: int) -> bool:
        """True when the follower gets nothing for now: it is throttled, and not in sync."""
        return self.is_throttled and node not in self.machine.isr and self._replication.throttles.leader.is_exceeded

    @property
    def low_watermark(self) -> int:
        """Below, every live replica has deleted its records."""
        return self.machine.low_watermark(self._partition.log.log_start_offset, self._replication.is_live)

    def wait_for_deletion(self, deletion: Deletion) -> None:
        """Calls the waiter's ``on_deleted`` when the low watermark has reached the offset, or never will here."""
        self._deletions.wait(deletion)
        self._replication.deleting[self] = None
        self.look_at_deletions()

    def look_at_deletions(self) -> None:
        """Answers requests that wait for the followers to delete records, if they have."""
        if not self.has_ended:
            low_watermark = self.low_watermark
            self.machine.deleted(low_watermark)
            self._deletions.advance(low_watermark)
            self._forget_deletions()

    def leave_deletion(self, what: Any) -> None:
        """Ends that waiting."""
        self._deletions.leave(what)
        self._forget_deletions()

    def _forget_deletions(self) -> None:
        if not self._deletions:
            self._replication.deleting.pop(self, None)

    def hand_over(self) -> Commits:
        """Hands over the waiting of what this epoch has written. The same broker leads the next one, too: its log keeps all of it."""
        commits, self._commits = self._commits, Commits()
        return commits

    def end(self, error: KafkaError) -> None:
        """Ends: this broker no longer leads, or cannot."""
        self.has_ended = True
        self.machine.end()
        self._commits.fail(error)
        self._deletions.fail(error)
        self._forget_deletions()
