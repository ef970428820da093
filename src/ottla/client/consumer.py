"""The consumer: records out of assigned partitions, in order within each.

Partitions are either assigned by hand (``assign``) or by a group (``subscribe``). Everything happens on the caller's loop:
heartbeats and fetches run beside ``poll``, positions move only inside it. Offsets are committed by hand; auto-commit
covers the records that were handed out before the present ``poll``. What asks no broker is no coroutine.

Source: KIP-62 (poll interval), KIP-345 (static members), KIP-429 (cooperative rebalancing), KIP-848 (``consumer_group/``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from ottla.client.absent_topics import AbsentTopics
from ottla.client.buffer import AnyRecord, FetchBuffer
from ottla.client.cluster import Cluster
from ottla.client.commits import Commits, Committable
from ottla.client.consumer_group.membership import ConsumerMembership
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.coordinator import GroupCoordinator
from ottla.client.fetcher import Fetcher
from ottla.client.group_membership import GroupMembership
from ottla.client.group_metadata import GroupMetadata
from ottla.client.handout import Handout
from ottla.client.look_ups import LookUps, is_absence
from ottla.client.membership import Membership
from ottla.client.membership_settings import CONSUMER
from ottla.client.meters import ConsumerMetrics
from ottla.client.positions import PartitionLike, PartitionPosition, Positions, partition_of, partitions_of
from ottla.client.rebalance_listener import Rebalanced, RebalanceListener
from ottla.client.rebalances import Rebalances
from ottla.client.starting_points import StartingPoints
from ottla.client.subscription import Subscription, SubscriptionPattern
from ottla.client.wrong_calls import check_milliseconds, check_offset, check_records_max
from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

LEAVE_MS_MIN: Final = 1000
"""For so long the answer to a leave is waited for, also after a commit that took all the time that a close has."""


class Consumer(LookUps):
    """A consumer, made on a running loop. It owns the cluster: ``close`` closes its connections."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._settings = settings
        self._positions = Positions()
        self._buffer = FetchBuffer(
            self._positions, key_deserializer=settings.key_deserializer, value_deserializer=settings.value_deserializer
        )
        self._absent = AbsentTopics(cluster)
        self._fetcher = Fetcher(cluster, self._positions, settings.fetch, self._buffer, self._absent)
        self._coordinator: GroupCoordinator | None = None
        self._membership: Membership | None = None
        if settings.group_id is not None:
            self._coordinator = GroupCoordinator(cluster, settings.group_id)
            self._membership = self._member_of(settings.group_id, self._coordinator)
        look_up = None if self._membership is None else self._membership.look_up
        self._starting_points = StartingPoints(cluster, self._positions, look_up, settings.fetch.auto_offset_reset)
        self._subscription: Subscription | None = None
        self._handout = Handout()
        meters, handout = self._fetcher.meters, self._handout
        self._commits = Commits(self._clock, settings, self._positions, handout, meters, self._coordinator, self._membership)
        self._is_assigned = False  # by hand
        self._rebalances: Rebalances | None = None
        if self._membership is not None:
            self._rebalances = Rebalances(self._clock, self._membership, self._positions, self._commits, self._fetcher, self._assign)
        self._is_polling = False

    # What is read

    def subscribe(
        self,
        topics: Sequence[str] = (),
        *,
        pattern: str | SubscriptionPattern | None = None,
        on_assigned: Rebalanced | None = None,
        on_revoked: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
    ) -> None:
        """Subscribes to these topics: the group divides their partitions among its members; ``poll`` joins it. No broker is asked.

        ``pattern`` is a regular expression that the whole name of a topic matches; topics that are created later are found. The brokers
        match a ``SubscriptionPattern``. A second call replaces the topics and the callbacks of the first.
        Called within ``poll``: ``on_revoked`` before partitions are given up, ``on_assigned`` after others were assigned, ``on_lost`` (else
        ``on_revoked``) when its membership has ended: others may own its partitions, and a commit would be refused.

        INVALID_GROUP_ID without a ``group_id``; INVALID_REQUEST while partitions are assigned by hand, or for a pattern that is not valid.
        """
        _, membership = self._group()
        if self._positions and self._subscription is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a consumer either subscribes or is assigned; assign no partitions first")
        listener = RebalanceListener(on_assigned, on_revoked, on_lost)
        listener.check()
        may_create = self._settings.allow_auto_create_topics
        wake, absent = self._fetcher.wake, self._absent
        subscription = Subscription(self._cluster, membership, wake, topics, pattern, may_create=may_create, absent=absent)
        if self._subscription is not None:
            self._subscription.end()
        self._subscription, self._is_assigned = subscription, False
        self._commits.on_subscribe()
        assert self._rebalances is not None, "it has a membership"
        self._rebalances.listener = listener

    async def unsubscribe(self) -> None:
        """Leaves the group and reads nothing more. Commits before, where that is automatic.

        A coordinator that does not answer is waited for until ``request_timeout_ms`` has passed, and raises nothing: the others get the
        partitions when ``session_timeout_ms`` has passed.
        """
        self._give_back()
        rebalances = self._rebalances
        if rebalances is not None and self._subscription is not None:
            rebalances.abandon()
            self._subscription.end()
            deadline_ms = self._clock.monotonic_ms() + self._cluster.request_timeout_ms
            await self._commits.end(deadline_ms)
            await rebalances.give_up(list(self._positions))
            left_ms = max(LEAVE_MS_MIN, deadline_ms - self._clock.monotonic_ms())
            await rebalances.membership.leave(left_ms)
        elif self._commits.is_by_hand:
            await self._commits.end(self._clock.monotonic_ms() + self._cluster.request_timeout_ms)
        self._subscription = None
        self._assign(())
        self._is_assigned = False

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Reads exactly these partitions, and joins no group. Partitions that were assigned before keep their positions.

        The others start at the commit of ``group_id``, else as ``auto_offset_reset`` says. INVALID_REQUEST while the consumer subscribes.
        """
        if self._subscription is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a consumer either subscribes or is assigned; unsubscribe first")
        wanted = partitions_of(partitions)
        self._give_back()
        self._commits.on_assign(wanted)
        self._assign(wanted)
        self._is_assigned = bool(wanted)
        self._cluster.retain({partition.topic for partition in self._positions})

    def subscription(self) -> list[str]:
        """Returns the topics that this consumer asks its group for: given to ``subscribe``, or matched by its pattern so far."""
        return [] if self._subscription is None else self._subscription.topics()

    def assignment(self) -> list[TopicPartition]:
        """Returns the partitions that are read at present."""
        return list(self._positions)

    @property
    def member_id(self) -> str:
        """This member's name in the group; empty while it has none."""
        return self._membership.member_id if self._membership is not None else ""

    @property
    def generation_id(self) -> int:
        """The group's generation that this member belongs to, or its epoch; -1 while there is none."""
        return self._membership.generation_id if self._membership is not None else -1

    def group_metadata(self) -> GroupMetadata:
        """Returns this consumer's place in its group, for ``send_offsets_to_transaction``; ILLEGAL_GENERATION when it is no member.

        INVALID_GROUP_ID without a ``group_id``.
        """
        return self._group()[1].metadata(is_subscribed=self._subscription is not None)

    # Records

    async def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[AnyRecord]:
        """Returns records that have come, at most ``max_records``; an empty list when none came in ``timeout_ms``."""
        await self._fetch(timeout_ms, max_records=max_records)
        return self._handout.rest()

    async def _fetch(self, timeout_ms: int, *, max_records: int | None = None) -> None:
        """Fetches the records that a poll would return, for ``_next_record``."""
        check_milliseconds(timeout_ms)
        if max_records is not None:
            check_records_max(max_records)
        if self._subscription is None and not self._is_assigned:
            text = "the consumer has nothing to read: call subscribe([topic]) or assign([(topic, partition)]) before it polls"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if self._is_polling:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "another poll of this consumer is in progress; only one may run at a time")
        self._is_polling = True
        try:
            self._give_back()
            self._handout.fill(await self._poll(timeout_ms, self._settings.max_poll_records if max_records is None else max_records))
        finally:
            self._is_polling = False

    def _next_record(self) -> AnyRecord | None:
        """Returns the next record of an iteration, which counts as consumed; None when ``_fetch`` must come first."""
        membership = self._membership
        if membership is not None and self._subscription is not None:
            membership.on_poll()
            if membership.needs_rejoin:
                return None
        if self._commits.is_due:
            return None
        return self._handout.next_record()

    def _rest(self) -> list[AnyRecord]:
        """Returns all that ``_fetch`` brought and ``_next_record`` has not handed out yet; it counts as consumed."""
        return self._handout.rest()

    async def _poll(self, timeout_ms: int, limit: int) -> list[AnyRecord]:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            await self._drive(deadline_ms)
            records = self._fetcher.take(limit)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if records or left_ms <= 0:
                self._fetcher.start()
                return records
            due_ms = self._membership.due_ms() if self._membership is not None and self._subscription is not None else left_ms
            await self._fetcher.wait(min(left_ms, due_ms))

    def _give_back(self) -> None:
        """Puts back what an iteration has not handed out."""
        count = self._handout.drop()
        if count:
            self._buffer.give_back(count)
            self._fetcher.meters.records -= count

    async def _drive(self, deadline_ms: int) -> None:
        rebalances, subscription = self._rebalances, self._subscription
        if rebalances is not None and subscription is not None and not subscription.is_ended:
            rebalances.membership.on_poll()
            subscription.look()
            if not await rebalances.run(subscription, deadline_ms):
                return
        if self._commits.is_due:
            await self._commits.commit_by(deadline_ms)
        await self._starting_points.find(deadline_ms)

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        before = list(self._positions)
        self._positions.assign(partitions)
        self._commits.forget(partition for partition in before if partition not in self._positions)
        self._buffer.forget()

    # Positions

    def seek(self, partition: PartitionLike, offset: int) -> None:
        """Moves the partition's position to ``offset``.

        UNKNOWN_TOPIC_OR_PARTITION for a partition that is not assigned, as before the first poll of a group; INVALID_REQUEST below 0.
        """
        check_offset(offset)
        self._give_back()
        self._assigned(partition).seek(offset)
        self._buffer.forget()

    def seek_to_beginning(self, partitions: Iterable[PartitionLike] = ()) -> None:
        """Moves the positions of these, or of all, to their first record. UNKNOWN_TOPIC_OR_PARTITION for one that is not assigned."""
        self._seek_to(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, partitions: Iterable[PartitionLike] = ()) -> None:
        """Moves the positions of these, or of all, to their end. UNKNOWN_TOPIC_OR_PARTITION for one that is not assigned."""
        self._seek_to(partitions, LATEST_TIMESTAMP)

    def _seek_to(self, partitions: Iterable[PartitionLike], timestamp: int) -> None:
        self._give_back()
        for partition in partitions_of(partitions) or list(self._positions):
            self._assigned(partition).seek_to(timestamp)
        self._buffer.forget()

    async def position(self, partition: PartitionLike, *, timeout_ms: int | None = None) -> int:
        """Returns the offset of the next record; asks brokers where it is not known yet, and waits for them.

        REQUEST_TIMED_OUT after ``timeout_ms``, with None after ``default_api_timeout_ms``, whatever is in the way.
        UNKNOWN_TOPIC_OR_PARTITION for a partition that is not assigned. OFFSET_OUT_OF_RANGE without a commit where ``auto_offset_reset`` is
        none.
        """
        partition = partition_of(partition)
        unread = self._handout.first_unread().get(partition)
        if unread is not None:
            return unread
        deadline_ms = self._clock.monotonic_ms() + (self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        while True:
            await self._starting_points.find(deadline_ms)
            position = self._assigned(partition).position
            if position is not None:
                return position
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the position of {partition} is not known")
            await self._fetcher.wait(left_ms, for_more=True)

    def pause(self, partitions: Iterable[PartitionLike]) -> None:
        """Stops handing out records of these until ``resume``; positions stay. UNKNOWN_TOPIC_OR_PARTITION for one that is not assigned."""
        self._give_back()
        for partition in partitions_of(partitions):
            self._assigned(partition).is_paused = True

    def resume(self, partitions: Iterable[PartitionLike]) -> None:
        """Hands out records of these again. UNKNOWN_TOPIC_OR_PARTITION for one that is not assigned."""
        for partition in partitions_of(partitions):
            self._assigned(partition).is_paused = False
        self._fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        """Returns the partitions that are paused."""
        return [partition for partition in self._positions if self._positions.of(partition).is_paused]

    async def partitions_for(self, topic: str) -> list[int]:
        """Returns the partition numbers. Waits for a topic that does not exist yet, and for brokers that do not answer.

        After ``default_api_timeout_ms`` UNKNOWN_TOPIC_OR_PARTITION where there is no such topic; NETWORK_EXCEPTION, BROKER_NOT_AVAILABLE or
        REQUEST_TIMED_OUT without an answer.
        """
        return await self._absent.partitions_for(topic, ms=self._settings.default_api_timeout_ms, setting="default_api_timeout_ms")

    def metrics(self) -> ConsumerMetrics:
        """Returns what this consumer has done so far, and its lag."""
        return self._fetcher.meters.reading(self._positions, self._handout.first_unread())

    # Commits

    async def commit(self, offsets: Committable | None = None) -> None:
        """Stores the offsets in the group; a record means the offset after it. Default: the offsets after all records handed out.

        With ``enable_auto_offset_store=False`` the default is what ``store_offsets`` was given. An offset may be an ``OffsetAndMetadata``,
        whose text ``Admin.committed_offsets`` returns.

        INVALID_GROUP_ID without a ``group_id``. ILLEGAL_GENERATION when it is a member no longer, UNKNOWN_MEMBER_ID when
        it is assigned and the group has members; REBALANCE_IN_PROGRESS and others where it is refused: the next owner reads again.
        Sent again while no coordinator answers, for ``default_api_timeout_ms``; after that NETWORK_EXCEPTION, BROKER_NOT_AVAILABLE or
        COORDINATOR_NOT_AVAILABLE says what is in the way, and REQUEST_TIMED_OUT what it waited for: the offsets may be stored or not.
        """
        self._group()
        is_subscribed = self._subscription is not None
        await self._until_answered("commit", lambda _: self._commits.commit(offsets, is_subscribed=is_subscribed), is_absence)

    def store_offsets(self, offsets: Committable) -> None:
        """Keeps these offsets for the next commit that names none, automatic or not. Needs ``enable_auto_offset_store=False``.

        INVALID_REQUEST without it, UNKNOWN_TOPIC_OR_PARTITION for one that is not assigned, INVALID_GROUP_ID without a ``group_id``.
        """
        self._group()
        self._commits.store(offsets)

    async def committed(self, partitions: Iterable[PartitionLike]) -> dict[TopicPartition, int]:
        """Returns the committed offsets, leaving out partitions without a commit. Waits for open transactions that have commits of them.

        INVALID_GROUP_ID without a ``group_id``. Goes on for ``default_api_timeout_ms``; after that UNSTABLE_OFFSET_COMMIT where one is
        still open, or NETWORK_EXCEPTION, BROKER_NOT_AVAILABLE, COORDINATOR_NOT_AVAILABLE or REQUEST_TIMED_OUT without an answer.
        """
        coordinator, membership = self._group()
        wanted = partitions_of(partitions)

        def ask(left_ms: int) -> Awaitable[dict[TopicPartition, tuple[int, int]]]:
            return coordinator.committed(wanted, membership.look_up, limit_ms=left_ms)

        found = await self._until_answered("committed", ask, is_absence)
        return {partition: offset for partition, (offset, _) in found.items()}

    async def close(self) -> None:
        """Commits when that is automatic, leaves the group and closes connections. A second call does nothing.

        A coordinator that does not answer is waited for until ``request_timeout_ms`` has passed, and raises nothing.
        """
        if self._fetcher.is_ended:
            return
        self._fetcher.end()
        try:
            if self._subscription is not None or self._commits.is_by_hand:
                await self.unsubscribe()
        finally:
            await self._commits.close()
            await self._fetcher.close()
            await self._starting_points.close()
            if self._membership is not None:
                await self._membership.close()
            await self._cluster.close()

    # Helpers

    def _member_of(self, group_id: str, coordinator: GroupCoordinator) -> Membership:
        settings, positions = self._settings.membership, self._positions
        if settings.group_protocol == CONSUMER:
            rack = self._settings.fetch.client_rack
            return ConsumerMembership(self._cluster, coordinator, group_id, settings, positions, rack=rack)
        return GroupMembership(self._cluster, coordinator, group_id, settings, positions)

    def _group(self) -> tuple[GroupCoordinator, Membership]:
        if self._coordinator is None or self._membership is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "this consumer has no group.id: make it with group_id=")
        return self._coordinator, self._membership

    def _assigned(self, given: PartitionLike) -> PartitionPosition:
        partition = partition_of(given)
        state = self._positions.get(partition)
        if state is None:
            way_out = ": a group assigns partitions within poll(); seek in on_assigned, or after it" if self._subscription else ""
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not assigned to this consumer{way_out}")
        return state
