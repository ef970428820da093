"""The consumer: records out of assigned partitions, in order within each.

Partitions are either assigned by hand (``assign``) or by a group (``subscribe``). Everything happens on the caller's loop:
heartbeats and fetches run beside ``poll``, positions move only inside it. Offsets are committed by hand or, with
auto-commit, those of records that were handed out before the present ``poll``.

Source: KIP-62 (poll interval), KIP-345 (static members), KIP-429 (cooperative rebalancing).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ottla.client.buffer import ConsumerRecord, FetchBuffer
from ottla.client.cluster import Cluster
from ottla.client.consumer_settings import ConsumerSettings, Rebalanced, call_rebalanced
from ottla.client.coordinator import GroupCoordinator
from ottla.client.fetcher import RESET_TIMESTAMPS, Fetcher, offsets_for_times
from ottla.client.group_metadata import GroupMetadata
from ottla.client.handout import Handout
from ottla.client.membership import GroupMembership
from ottla.client.positions import PartitionPosition, Positions
from ottla.client.subscription import Subscription
from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition


class Consumer:
    """A consumer, made on a running loop. It owns the cluster: ``close`` closes its connections."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._settings = settings
        self._positions = Positions()
        self._buffer = FetchBuffer(
            self._positions, key_deserializer=settings.key_deserializer, value_deserializer=settings.value_deserializer
        )
        self._fetcher = Fetcher(cluster, self._positions, settings.fetch, self._buffer)
        self._coordinator: GroupCoordinator | None = None
        self._membership: GroupMembership | None = None
        if settings.group_id is not None:
            self._coordinator = GroupCoordinator(cluster, settings.group_id)
            self._membership = GroupMembership(cluster, self._coordinator, settings.group_id, settings.membership, self._positions)
        self._subscription: Subscription | None = None
        self._on_assigned: Rebalanced | None = None
        self._on_revoked: Rebalanced | None = None
        self._handout = Handout()
        self._committed_ms = cluster.world.clock.monotonic_ms()
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self._is_polling = False
        self._is_closed = False

    # What is read

    async def subscribe(
        self,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Rebalanced | None = None,
        on_revoked: Rebalanced | None = None,
    ) -> None:
        """The group divides the partitions of these topics among its members; ``poll`` joins it.

        ``pattern`` is a regular expression that the whole name of a topic matches; topics that are created later are found.
        ``on_revoked`` is called, within ``poll``, before partitions are given up, ``on_assigned`` after others were assigned.
        """
        _, membership = self._group()
        if self._positions and self._subscription is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a consumer either subscribes or is assigned; assign no partitions first")
        may_create = self._settings.allow_auto_create_topics
        subscription = Subscription(self._cluster, membership, self._fetcher.wake, may_create=may_create)
        await subscription.begin(topics, pattern)
        if self._subscription is not None:
            await self._subscription.end()
        self._subscription = subscription
        self._on_assigned, self._on_revoked = on_assigned, on_revoked

    async def unsubscribe(self) -> None:
        """Nothing is read; this member has left its group."""
        self._give_back()
        if self._membership is not None and self._subscription is not None:
            if self._joining is not None:
                self._joining.cancel()
                self._joining = None
            await self._subscription.end()
            await self._commit_if_automatic()
            await self._revoke(list(self._positions))
            await self._membership.leave()
        self._subscription = None
        self._assign(())

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these partitions are read; no group has a say in it. Those that were assigned before keep their positions."""
        if self._subscription is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a consumer either subscribes or is assigned; unsubscribe first")
        self._give_back()
        self._assign(partitions)
        self._cluster.retain({partition.topic for partition in self._positions})

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read at present."""
        return list(self._positions)

    @property
    def member_id(self) -> str:
        """The coordinator's name for this member; empty while it has none."""
        return self._membership.member_id if self._membership is not None else ""

    @property
    def generation_id(self) -> int:
        """The group's generation that this member belongs to; -1 while there is none."""
        return self._membership.generation_id if self._membership is not None else -1

    def group_metadata(self) -> GroupMetadata:
        """This consumer's place in its group, for ``send_offsets_to_transaction``; ILLEGAL_GENERATION when it is no member at present."""
        return self._group()[1].metadata(is_subscribed=self._subscription is not None)

    # Records

    async def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records that have come, at most ``max_records``; an empty list when none came in ``timeout_ms``.

        Drives everything: joining and rebalancing, resets, auto-commit. KafkaError for what the application has to decide on.
        """
        await self.fetch(timeout_ms, max_records=max_records)
        return self._handout.rest()

    async def fetch(self, timeout_ms: int, *, max_records: int | None = None) -> None:
        """``next_record`` has the records that a poll would return."""
        if self._is_polling:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "another poll of this consumer is in progress; only one may run at a time")
        self._is_polling = True
        try:
            self._give_back()
            self._handout.fill(await self._poll(timeout_ms, self._settings.max_poll_records if max_records is None else max_records))
        finally:
            self._is_polling = False

    def next_record(self) -> ConsumerRecord | None:
        """The next record of an iteration, consumed by this; None when ``fetch`` must come first."""
        membership = self._membership
        if membership is not None and self._subscription is not None:
            membership.on_poll()
            if membership.needs_rejoin or self._is_commit_due():
                return None
        return self._handout.next_record()

    def rest(self) -> list[ConsumerRecord]:
        """All that ``fetch`` brought and ``next_record`` did not hand out yet, consumed by this."""
        return self._handout.rest()

    async def _poll(self, timeout_ms: int, limit: int) -> list[ConsumerRecord]:
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
        """What an iteration has not handed out comes again."""
        count = self._handout.drop()
        if count:
            self._buffer.give_back(count)

    async def _drive(self, deadline_ms: int) -> None:
        membership = self._membership
        if membership is not None and self._subscription is not None:
            membership.on_poll()
            self._subscription.look()
            while membership.needs_rejoin or self._joining is not None:
                if not await self._rebalance(membership, deadline_ms):
                    return
            if self._is_commit_due():
                await self._commit_if_automatic()
        await self._find_positions()

    async def _rebalance(self, membership: GroupMembership, deadline_ms: int) -> bool:
        """One round: give up what must be given up, join, take what was assigned. False when the join outlasts the poll."""
        if self._joining is None:
            await self._commit_if_automatic()
            given_up = membership.revoked_before_join(list(self._positions))
            if given_up:
                await self._revoke(given_up)
            self._joining = asyncio.get_running_loop().create_task(membership.join(self._fetcher.wake))
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        done, _ = await asyncio.wait({self._joining}, timeout=left_ms / 1000)
        if not done:
            return False
        task, self._joining = self._joining, None
        try:
            joined = task.result()
        except Exception:
            membership.needs_rejoin = True  # the error is raised to the application, and the next poll tries again
            raise
        owned = list(self._positions)
        lost = [partition for partition in owned if partition not in joined]
        gained = [partition for partition in joined if partition not in owned]
        try:
            await self._revoke(lost)
        finally:  # the application may have been interrupted, or its callback failed: the assignment is kept
            self._assign(joined)
            membership.assigned(had_to_revoke=bool(lost))
        await call_rebalanced(self._on_assigned, gained)
        return True

    async def _revoke(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        try:
            await call_rebalanced(self._on_revoked, partitions)
        finally:
            gone = set(partitions)
            self._assign(partition for partition in self._positions if partition not in gone)

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions.assign(partitions)
        self._buffer.forget()

    async def _find_positions(self) -> None:
        """Partitions without a position begin at the group's commit, else where the reset policy says.

        Those of which a transaction has offsets that is still open have no position until it has ended.
        """
        unknown = self._positions.unknown(self._clock.monotonic_ms())
        if not unknown:
            return
        committed: dict[TopicPartition, tuple[int, int]] = {}
        pending: set[TopicPartition] = set()
        if self._coordinator is not None:
            committed, pending = await self._coordinator.look_up(unknown)
        for partition in unknown:
            found = self._positions.get(partition)
            if found is None or found.position is not None or found.seek_timestamp is not None:
                continue
            if partition in pending:
                found.ask_later(self._clock.monotonic_ms(), self._cluster.backoff.delay_ms(found.failures, self._cluster.world))
            elif partition in committed:
                found.seek(committed[partition][0])
            elif self._settings.fetch.auto_offset_reset == "none":
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no committed offset and auto.offset.reset=none")
            else:
                found.seek_to(RESET_TIMESTAMPS[self._settings.fetch.auto_offset_reset])
        missing = {partition.topic for partition in self._positions} - self._cluster.topics.keys()
        if missing:
            await self._cluster.refresh(missing)

    # Positions

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next record of the partition is the one at ``offset``."""
        self._give_back()
        self._assigned(partition).seek(offset)
        self._buffer.forget()

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """The next record of each of the partitions, or of all, is its first."""
        self._seek_to(partitions, EARLIEST_TIMESTAMP)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """The next record of each of the partitions, or of all, is the first that comes from now on."""
        self._seek_to(partitions, LATEST_TIMESTAMP)

    def _seek_to(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        self._give_back()
        for partition in list(partitions) or list(self._positions):
            self._assigned(partition).seek_to(timestamp)
        self._buffer.forget()

    async def position(self, partition: TopicPartition, *, timeout_ms: int | None = None) -> int:
        """The offset of the next record. REQUEST_TIMED_OUT when it cannot be found out in time."""
        unread = self._handout.first_unread().get(partition)
        if unread is not None:
            return unread
        deadline_ms = self._clock.monotonic_ms() + (self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        while True:
            await self._find_positions()
            position = self._assigned(partition).position
            if position is not None:
                return position
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the position of {partition} is not known")
            await self._fetcher.wait(left_ms)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """No records of these until ``resume``; positions stay."""
        self._give_back()
        for partition in partitions:
            self._assigned(partition).is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Records of these are handed out again."""
        for partition in partitions:
            self._assigned(partition).is_paused = False
        self._fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return [partition for partition in self._positions if self._positions.of(partition).is_paused]

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int, int]]:
        """Offset, timestamp and leader epoch of the first record not older than each time; offset -1 when there is none."""
        isolation_level = self._settings.fetch.isolation_level_number
        return await offsets_for_times(self._cluster, dict(times), isolation_level=isolation_level)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of each partition's first record."""
        found = await offsets_for_times(self._cluster, dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return {partition: offset for partition, (offset, _, _) in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after each partition's last record; with read_committed, after the last that such a consumer may read."""
        found = await self.offsets_for_times(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return {partition: offset for partition, (offset, _, _) in found.items()}

    # Commits

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """The offsets, or the positions after all that was handed out, are stored in the group.

        KafkaError when the group has moved on: ILLEGAL_GENERATION for a subscribed consumer that is no member at present.
        """
        coordinator, membership = self._group()
        wanted = self._consumed() if offsets is None else {partition: (offset, -1) for partition, offset in offsets.items()}
        if self._subscription is None:
            if wanted:
                await coordinator.commit(wanted)
        elif membership.generation_id < 0:
            # As a commit without a member it would be taken while the group is empty, over what the successors have committed.
            text = "this consumer is not a member of its group at present, and another member may own its partitions; poll to rejoin"
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, text)
        elif wanted:
            await membership.commit(wanted)
        self._committed_ms = self._clock.monotonic_ms()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed; partitions without a commit are left out. Waits for open transactions that have commits of them."""
        coordinator, _ = self._group()
        found = await coordinator.committed(list(partitions))
        return {partition: offset for partition, (offset, _) in found.items()}

    def _consumed(self) -> dict[TopicPartition, tuple[int, int]]:
        unread = self._handout.first_unread()
        consumed = self._positions.consumed()
        return {partition: (unread.get(partition, offset), epoch) for partition, (offset, epoch) in consumed.items()}

    def _is_commit_due(self) -> bool:
        is_over = self._clock.monotonic_ms() - self._committed_ms >= self._settings.auto_commit_interval_ms
        return self._settings.enable_auto_commit and is_over

    async def _commit_if_automatic(self) -> None:
        membership = self._membership
        if membership is None or not self._settings.enable_auto_commit or membership.generation_id < 0:
            return
        self._committed_ms = self._clock.monotonic_ms()
        consumed = self._consumed()
        try:
            if consumed:
                await membership.commit(consumed)
        except KafkaError:
            return  # a rebalance or a fenced member; the next one to own the partitions reads again

    async def close(self) -> None:
        """Offsets are committed when that is automatic, the group is left, connections are closed. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._subscription is not None:
                await self.unsubscribe()
        finally:
            await self._fetcher.close()
            if self._membership is not None:
                await self._membership.close()
            await self._cluster.close()

    # Helpers

    def _group(self) -> tuple[GroupCoordinator, GroupMembership]:
        if self._coordinator is None or self._membership is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "this consumer has no group.id")
        return self._coordinator, self._membership

    def _assigned(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not assigned to this consumer")
        return state
