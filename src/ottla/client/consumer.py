"""The consumer: records out of assigned partitions, in order within each.

Partitions are either assigned by hand (``assign``) or by a group (``subscribe``). Everything happens on the caller's loop:
heartbeats and fetches run beside ``poll``, positions move only inside it. Offsets are committed by hand or, with
auto-commit, those of records that an earlier ``poll`` handed out.

Source: KIP-62 (poll interval), KIP-345 (static members), KIP-429 (cooperative rebalancing).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.fetcher import RESET_TIMESTAMPS, ConsumerRecord, Fetcher, FetchSettings, offsets_for_times
from ottla.client.membership import GroupMembership, MembershipSettings
from ottla.client.positions import PartitionPosition, Positions
from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

PATTERN_REFRESH_MS: Final = 30_000
Rebalanced = Callable[[list[TopicPartition]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Kafka's consumer configuration, by its names. Without ``group_id`` there is only ``assign``."""

    group_id: str | None = None
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5000
    max_poll_records: int = 500
    default_api_timeout_ms: int = 60_000
    fetch: FetchSettings = field(default_factory=FetchSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)


class Consumer:
    """Made on a running loop. Owns the cluster: ``close`` closes its connections."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._settings = settings
        self._positions = Positions()
        self._fetcher = Fetcher(cluster, self._positions, settings.fetch)
        self._membership = (
            GroupMembership(cluster, settings.group_id, settings.membership, self._positions) if settings.group_id is not None else None
        )
        self._pattern: re.Pattern[str] | None = None
        self._pattern_ms = 0
        self._is_subscribed = False
        self._on_assigned: Rebalanced | None = None
        self._on_revoked: Rebalanced | None = None
        self._committed_ms = cluster.world.clock.monotonic_ms()
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
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
        """The group divides the partitions of these topics among its members; ``poll`` joins it."""
        membership = self._group()
        if bool(topics) == (pattern is not None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "subscribe takes topics or a pattern")
        self._is_subscribed = True
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._pattern = re.compile(pattern) if pattern is not None else None
        membership.subscribe(await self._matching() if self._pattern is not None else list(topics))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these partitions are read; no group has a say in it."""
        if self._is_subscribed:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a consumer either subscribes or is assigned")
        self._positions.assign(partitions)
        self._fetcher.forget()

    async def unsubscribe(self) -> None:
        """Nothing is read; the group hears that this member leaves."""
        if self._membership is not None and self._is_subscribed:
            if self._joining is not None:
                self._joining.cancel()
                self._joining = None
            await self._commit_if_automatic()
            await self._revoke(list(self._positions))
            await self._membership.leave()
        self._is_subscribed = False
        self._positions.assign(())
        self._fetcher.forget()

    def assignment(self) -> list[TopicPartition]:
        return list(self._positions)

    @property
    def member_id(self) -> str:
        return self._membership.member_id if self._membership is not None else ""

    @property
    def generation_id(self) -> int:
        return self._membership.generation_id if self._membership is not None else -1

    # Records

    async def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records that have come, at most ``max_records``; an empty list when none came in ``timeout_ms``.

        Drives everything: joining and rebalancing, resets, auto-commit. KafkaError for what the application must hear.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        limit = self._settings.max_poll_records if max_records is None else max_records
        while True:
            await self._drive(deadline_ms)
            records = self._fetcher.take(limit)
            if records:
                self._fetcher.start()
                return records
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._fetcher.start()
                return []
            due_ms = self._membership.due_ms() if self._membership is not None and self._is_subscribed else left_ms
            await self._fetcher.wait(min(left_ms, due_ms))

    async def _drive(self, deadline_ms: int) -> None:
        membership = self._membership
        if membership is not None and self._is_subscribed:
            membership.polled()
            if self._pattern is not None and self._clock.monotonic_ms() - self._pattern_ms >= PATTERN_REFRESH_MS:
                membership.subscribe(await self._matching())
            while membership.needs_rejoin or self._joining is not None:
                if not await self._rebalance(membership, deadline_ms):
                    return
            if self._settings.enable_auto_commit:
                await self._commit_if_due()
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
        joined = task.result()
        owned = list(self._positions)
        lost = [partition for partition in owned if partition not in joined]
        gained = [partition for partition in joined if partition not in owned]
        if lost:
            await self._revoke(lost)
        self._positions.assign(joined)
        self._fetcher.forget()
        membership.assigned(had_to_revoke=bool(lost))
        if self._on_assigned is not None:
            await self._on_assigned(gained)
        return True

    async def _revoke(self, partitions: list[TopicPartition]) -> None:
        if partitions and self._on_revoked is not None:
            await self._on_revoked(partitions)
        gone = set(partitions)
        self._positions.assign([partition for partition in self._positions if partition not in gone])
        self._fetcher.forget()

    async def _find_positions(self) -> None:
        """Partitions without a position begin at the group's commit, else where the reset policy says."""
        unknown = [p for p in self._positions if (state := self._positions.of(p)).position is None and state.seek_timestamp is None]
        if not unknown:
            return
        committed: dict[TopicPartition, int] = {}
        if self._membership is not None:
            committed = {p: offset for p, (offset, _) in (await self._membership.committed(unknown)).items()}
        for partition in unknown:
            found = self._positions.get(partition)
            if found is None or found.position is not None or found.seek_timestamp is not None:
                continue
            if partition in committed:
                found.seek(committed[partition])
            elif self._settings.fetch.auto_offset_reset == "none":
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no committed offset and auto.offset.reset=none")
            else:
                found.seek_to(RESET_TIMESTAMPS[self._settings.fetch.auto_offset_reset])
        await self._refresh_assigned()

    async def _refresh_assigned(self) -> None:
        missing = {partition.topic for partition in self._positions} - self._cluster.topics.keys()
        if missing:
            await self._cluster.refresh(missing)

    # Positions

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next record of the partition is the one at ``offset``."""
        self._assigned(partition).seek(offset)
        self._fetcher.forget()

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        for partition in list(partitions) or list(self._positions):
            self._assigned(partition).seek_to(EARLIEST_TIMESTAMP)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        for partition in list(partitions) or list(self._positions):
            self._assigned(partition).seek_to(LATEST_TIMESTAMP)

    async def position(self, partition: TopicPartition, *, timeout_ms: int | None = None) -> int:
        """The offset of the next record. REQUEST_TIMED_OUT when it cannot be found out in time."""
        deadline_ms = self._clock.monotonic_ms() + (timeout_ms or self._settings.default_api_timeout_ms)
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
        for partition in partitions:
            self._assigned(partition).is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._assigned(partition).is_paused = False
        self._fetcher.wake()

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int, int]]:
        """Offset, timestamp and leader epoch of the first record not older than each time; offset -1 when there is none."""
        return await offsets_for_times(self._cluster, dict(times), isolation_level=self._settings.fetch.isolation_level_number)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = await offsets_for_times(self._cluster, dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return {partition: offset for partition, (offset, _, _) in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        times = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        found = await offsets_for_times(self._cluster, times, isolation_level=self._settings.fetch.isolation_level_number)
        return {partition: offset for partition, (offset, _, _) in found.items()}

    # Commits

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """The offsets, or all positions, are stored in the group. KafkaError when the group has moved on."""
        membership = self._group()
        if offsets is None:
            await membership.commit(self._positions.consumed())
        else:
            await membership.commit({partition: (offset, -1) for partition, offset in offsets.items()})
        self._committed_ms = self._clock.monotonic_ms()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed; partitions without a commit are left out."""
        found = await self._group().committed(list(partitions))
        return {partition: offset for partition, (offset, _) in found.items()}

    async def _commit_if_due(self) -> None:
        if self._clock.monotonic_ms() - self._committed_ms >= self._settings.auto_commit_interval_ms:
            await self._commit_if_automatic()

    async def _commit_if_automatic(self) -> None:
        if self._membership is None or not self._settings.enable_auto_commit or self._membership.generation_id < 0:
            return
        self._committed_ms = self._clock.monotonic_ms()
        try:
            await self._membership.commit(self._positions.consumed())
        except KafkaError as error:
            self._membership.heard(error.code)  # a rebalance or a fenced member; the next one to own the partitions reads again

    async def close(self) -> None:
        """Offsets are committed when that is automatic, the group is left, connections are closed."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._is_subscribed:
                await self.unsubscribe()
        finally:
            await self._fetcher.close()
            if self._membership is not None:
                await self._membership.close()
            await self._cluster.close()

    # Helpers

    def _group(self) -> GroupMembership:
        if self._membership is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "this consumer has no group.id")
        return self._membership

    def _assigned(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(partition)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not assigned to this consumer")
        return state

    async def _matching(self) -> list[str]:
        assert self._pattern is not None, "only called with a pattern"
        self._pattern_ms = self._clock.monotonic_ms()
        topics = await self._cluster.all_topics()
        return sorted(name for name, topic in topics.items() if not topic.is_internal and self._pattern.fullmatch(name))
