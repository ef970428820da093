"""What a consumer stores in its group: which offsets, when it does so by itself, and in whose name.

A commit covers what was handed out, or, with ``enable.auto.offset.store=false``, what the application has stored as processed. A member
commits in the name of its generation; a consumer whose partitions were assigned by hand commits in its own.

A poll waits for the automatic commit that it starts, but not past its own end: a coordinator that does not answer holds up no poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from ottla.client.background import background, end
from ottla.client.buffer import ConsumerRecord
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.coordinator import GroupCoordinator
from ottla.client.group_metadata import OffsetAndMetadata, Place, no_member
from ottla.client.handout import Handout
from ottla.client.membership import Membership
from ottla.client.meters import ConsumerMeters
from ottla.client.positions import ByPartition, Positions, keyed
from ottla.client.wrong_calls import check_offsets
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock
from ottla.types import TopicPartition

log: Final = logging.getLogger("ottla.client")  # as in watch.py

Committable = ByPartition[int] | ByPartition[OffsetAndMetadata] | ByPartition[int | OffsetAndMetadata] | ConsumerRecord[Any, Any]
"""What a commit stores: by partition the offset that is to be read next, or a record, which means the offset after it."""


class Commits:
    def __init__(
        self,
        clock: Clock,
        settings: ConsumerSettings,
        positions: Positions,
        handout: Handout,
        meters: ConsumerMeters,
        coordinator: GroupCoordinator | None,
        membership: Membership | None,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._positions = positions
        self._handout = handout
        self._meters = meters
        self._coordinator = coordinator
        self._membership = membership
        self._stored: dict[TopicPartition, Place] = {}  # of assigned partitions
        self._left: dict[TopicPartition, Place] = {}  # of those that were assigned by hand, and are no longer: not committed yet
        self._was_member = False  # since it subscribed: what it had then, another may have now
        self._is_by_hand = False  # partitions are assigned by hand
        self._has_ended = True  # neither is the consumer subscribed, nor are partitions assigned
        self._committed_ms = clock.monotonic_ms()
        self._under_way: asyncio.Task[None] | None = None  # an automatic commit that a poll has started; one at a time
        self.was_cut_off = False  # the last one of these, by another commit

    async def commit(self, offsets: Committable | None, *, is_subscribed: bool) -> None:
        """Stores these offsets, or what is due, in the group. ILLEGAL_GENERATION for a subscribed consumer that is no
        member, unless it is due what a first member has: nothing.
        """
        assert self._coordinator is not None, "the consumer has a group"
        assert self._membership is not None, "and with it a membership"
        await self.close()
        wanted = self._due() if offsets is None else _wanted(offsets)
        if not is_subscribed:
            if wanted:
                await self._coordinator.commit(wanted)
                self._meters.commits += 1
            if offsets is None:
                self._left = {}
        elif self._membership.generation_id < 0:
            # As a commit without a member it would be taken while the group is empty, over what the successors have committed.
            if wanted or self._was_member or offsets is not None:
                raise no_member(self._membership.why_out)
        elif wanted:
            await self._membership.commit(wanted)
            self._meters.commits += 1
        self._committed_ms = self._clock.monotonic_ms()

    def store(self, offsets: Committable) -> None:
        """Keeps these offsets for the next commit that names none. INVALID_REQUEST where commits cover what was handed out."""
        if self._settings.enable_auto_offset_store:
            text = "store_offsets: commits cover all that was handed out; make the consumer with enable_auto_offset_store=False"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        wanted = _wanted(offsets)
        for partition in wanted:
            if partition not in self._positions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not assigned to this consumer")
        self._stored |= wanted

    @property
    def is_by_hand(self) -> bool:
        """Whether they are in this consumer's own name, of partitions that were assigned by hand; else in that of a member."""
        return self._is_by_hand and self._membership is not None

    def on_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits in this consumer's own name from now on. What is due of other partitions than these is left to the next commit."""
        if self.is_by_hand and self._settings.enable_auto_commit:
            wanted = set(partitions)
            self._left = {partition: place for partition, place in self._due().items() if partition not in wanted}
        self._is_by_hand, self._has_ended = True, False

    def on_subscribe(self) -> None:
        """Commits in the name of a member from now on."""
        self._is_by_hand, self._has_ended, self._left, self._was_member = False, False, {}, False

    def on_join(self) -> None:
        """Notes that the consumer is a member: records may be handed out to it."""
        self._was_member = True

    async def end(self, deadline_ms: int) -> None:
        """Does the last automatic commit, until the deadline at most, and then none until there are partitions again."""
        self._has_ended = True
        await self.commit_by(deadline_ms)
        await self.close()

    def forget(self, gone: Iterable[TopicPartition]) -> None:
        """Drops what was stored for partitions that are no longer assigned: it is another consumer's to process."""
        for partition in gone:
            self._stored.pop(partition, None)

    @property
    def is_due(self) -> bool:
        """Whether auto.commit.interval.ms has passed, or partitions were left, where commits are automatic and none is under way."""
        is_over = self._clock.monotonic_ms() - self._committed_ms >= self._settings.auto_commit_interval_ms
        is_automatic = self._settings.enable_auto_commit and self._membership is not None and not self._has_ended
        return is_automatic and (is_over or bool(self._left)) and self._under_way is None

    async def commit_by(self, deadline_ms: int) -> bool:
        """Commits what is due, where that is automatic and this consumer is a member, or has partitions assigned by hand.

        Waits for it until the deadline at most, as ``ended_by``. A failure leaves it to the next owner.
        """
        await self.close()
        self.was_cut_off = False
        task = self._under_way = background(self._commit_due(), name="ottla-commit")
        task.add_done_callback(self._on_end)
        return await self.ended_by(deadline_ms)

    async def ended_by(self, deadline_ms: int) -> bool:
        """Waits for the automatic commit that is under way, until the deadline at most. False when it then goes on by itself."""
        task = self._under_way
        if task is not None:
            await asyncio.wait({task}, timeout=max(0, deadline_ms - self._clock.monotonic_ms()) / 1000)
        return task is None or task.done()

    async def close(self) -> None:
        """Ends the commit that is under way, if there is one: sent again later, it would take back what a newer one stores."""
        under_way, self._under_way = self._under_way, None
        self.was_cut_off = self.was_cut_off or under_way is not None
        await end(under_way)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if self._under_way is task:
            self._under_way = None

    async def _commit_due(self) -> None:
        membership, coordinator = self._membership, self._coordinator
        if membership is None or coordinator is None or not self._settings.enable_auto_commit:
            return
        if not self.is_by_hand and membership.generation_id < 0:
            return
        self._committed_ms = self._clock.monotonic_ms()
        due = self._due()
        self._left = {}
        try:
            if due:
                await (coordinator.commit(due) if self.is_by_hand else membership.commit(due))
                self._meters.commits += 1
        except KafkaError as error:
            # a rebalance or a fenced member: the next one to own the partitions reads again
            if self.is_by_hand:
                log.warning("an automatic commit of assigned partitions was refused, or not answered: %s", error)

    def _due(self) -> dict[TopicPartition, Place]:
        if not self._settings.enable_auto_offset_store:
            return self._left | self._stored
        unread = self._handout.first_unread()
        consumed = self._positions.consumed()
        places = {partition: Place(unread.get(partition, offset), epoch) for partition, (offset, epoch) in consumed.items()}
        return self._left | places


def _wanted(offsets: Committable) -> dict[TopicPartition, Place]:
    if isinstance(offsets, ConsumerRecord):
        return {TopicPartition(offsets.topic, offsets.partition): Place(offsets.offset + 1, offsets.leader_epoch)}
    check_offsets(offsets, "commit", OffsetAndMetadata)
    places: dict[TopicPartition, int | OffsetAndMetadata] = keyed(offsets)
    return {
        partition: Place(given.offset, metadata=given.metadata) if isinstance(given, OffsetAndMetadata) else Place(given)
        for partition, given in places.items()
    }
