"""What a consumer stores in its group: which offsets, when it does so by itself, and in whose name.

A commit covers what was handed out, or, with ``enable.auto.offset.store=false``, what the application has stored as processed. A member
commits in the name of its generation; a consumer whose partitions were assigned by hand commits in its own.

A poll waits for the automatic commit that it starts, but not past its own end: a coordinator that does not answer holds up no poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

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
        self._committed_ms = clock.monotonic_ms()
        self._under_way: asyncio.Task[None] | None = None  # an automatic commit that a poll has started; one at a time

    async def commit(self, offsets: Committable | None, *, is_subscribed: bool) -> None:
        """Stores these offsets, or what is due, in the group. ILLEGAL_GENERATION for a subscribed consumer that is no member."""
        assert self._coordinator is not None, "the consumer has a group"
        assert self._membership is not None, "and with it a membership"
        await self.close()
        wanted = self._due() if offsets is None else _wanted(offsets)
        if not is_subscribed:
            if wanted:
                await self._coordinator.commit(wanted)
                self._meters.commits += 1
        elif self._membership.generation_id < 0:
            # As a commit without a member it would be taken while the group is empty, over what the successors have committed.
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

    def forget(self, gone: Iterable[TopicPartition]) -> None:
        """Drops what was stored for partitions that are no longer assigned: it is another consumer's to process."""
        for partition in gone:
            self._stored.pop(partition, None)

    @property
    def is_due(self) -> bool:
        """Whether auto.commit.interval.ms has passed, where commits are automatic and none is under way."""
        is_over = self._clock.monotonic_ms() - self._committed_ms >= self._settings.auto_commit_interval_ms
        return self._settings.enable_auto_commit and is_over and self._under_way is None

    async def commit_by(self, deadline_ms: int) -> None:
        """Does what ``commit_if_automatic`` does, and waits for it until the deadline at most; it then goes on by itself."""
        await self.close()
        task = self._under_way = background(self._commit_due(), name="ottla-commit")
        task.add_done_callback(self._on_end)
        await asyncio.wait({task}, timeout=max(0, deadline_ms - self._clock.monotonic_ms()) / 1000)

    async def commit_if_automatic(self) -> None:
        """Commits what is due, where that is automatic and this consumer is a member; a failure leaves it to the next owner."""
        await self.close()
        await self._commit_due()

    async def close(self) -> None:
        """Ends the commit that is under way, if there is one: sent again later, it would take back what a newer one stores."""
        under_way, self._under_way = self._under_way, None
        await end(under_way)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if self._under_way is task:
            self._under_way = None

    async def _commit_due(self) -> None:
        membership = self._membership
        if membership is None or not self._settings.enable_auto_commit or membership.generation_id < 0:
            return
        self._committed_ms = self._clock.monotonic_ms()
        due = self._due()
        try:
            if due:
                await membership.commit(due)
                self._meters.commits += 1
        except KafkaError:
            return  # a rebalance or a fenced member; the next one to own the partitions reads again

    def _due(self) -> dict[TopicPartition, Place]:
        if not self._settings.enable_auto_offset_store:
            return dict(self._stored)
        unread = self._handout.first_unread()
        consumed = self._positions.consumed()
        return {partition: Place(unread.get(partition, offset), epoch) for partition, (offset, epoch) in consumed.items()}


def _wanted(offsets: Committable) -> dict[TopicPartition, Place]:
    if isinstance(offsets, ConsumerRecord):
        return {TopicPartition(offsets.topic, offsets.partition): Place(offsets.offset + 1, offsets.leader_epoch)}
    check_offsets(offsets, "commit", OffsetAndMetadata)
    places: dict[TopicPartition, int | OffsetAndMetadata] = keyed(offsets)
    return {
        partition: Place(given.offset, metadata=given.metadata) if isinstance(given, OffsetAndMetadata) else Place(given)
        for partition, given in places.items()
    }
