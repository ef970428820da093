"""One member of a classic consumer group: joining, heartbeats, commits.

A round: JoinGroup (which waits for the others), then the leader divides the partitions and each member fetches its share with
SyncGroup. Eager strategies give up all partitions before a round; cooperative ones keep theirs, and what moves is given up
first and assigned in a second round. The mode is cooperative when every strategy of the list is. No heartbeats go out while JoinGroup
is held by the coordinator, and an answer counts only for the generation that it was asked with: what it says of another is past.

Source: KIP-62, KIP-345, KIP-394 (member ids first), KIP-429.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.client.assignors import COOPERATIVE
from ottla.client.background import background, end
from ottla.client.cluster import JOIN_LANE, Cluster
from ottla.client.consumer_protocol import (
    Share,
    decode_assignment,
    decode_subscription,
    divide,
    encode_assignment,
    encode_subscription,
)
from ottla.client.coordinator import Found, GroupCoordinator
from ottla.client.group_metadata import GroupMetadata, Place, no_member, out_for_another, out_for_silence
from ottla.client.membership_settings import MembershipSettings
from ottla.client.positions import Positions
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.types import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
_START_OVER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class GroupMembership:
    """A ``Membership``."""

    def __init__(
        self, cluster: Cluster, coordinator: GroupCoordinator, group_id: str, settings: MembershipSettings, positions: Positions
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._clock = cluster.world.clock
        self._group_id = group_id
        self._settings = settings
        self._positions = positions
        self._is_cooperative = all(name in COOPERATIVE for name in settings.partition_assignment_strategy)
        self._topics: list[str] = []
        self._may_create = False
        self._heartbeats: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None  # of a member that does not poll
        self._is_join_out = False  # JoinGroup waits for the other members
        self._polled_ms = 0
        self._counts: dict[str, int] = {}  # partitions by topic, as they were when the group's were divided; 0 for a topic not there
        self._previous = Share()
        self._failed_joins = 0  # since the last one that came to its end
        self.member_id = ""
        self.generation_id = -1
        self.needs_rejoin = False
        self._was_lost = False  # a membership, since partitions were last assigned
        self.why_out = ""

    # Called by the consumer

    def subscribe(self, topics: list[str], *, may_create: bool) -> None:
        """Asks for these topics in the next round; with ``may_create`` brokers may create the missing ones."""
        self._may_create = may_create
        if topics != self._topics:
            self._topics = topics
            self.needs_rejoin = True

    def subscribe_matching(self, pattern: str) -> None:
        """Raises INVALID_REQUEST: members of classic groups say which topics they read."""
        text = "brokers match patterns for members of group_protocol='consumer'; in a classic group give the pattern as a text of Python's"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    @property
    def topics(self) -> list[str]:
        """Those that were last subscribed to."""
        return list(self._topics)

    def on_metadata(self) -> None:
        """Takes newer metadata: the group divides its partitions again when topics were created, grown or deleted since it last did."""
        if self.generation_id >= 0 and self._counts != self._partition_counts(self._counts):
            self.needs_rejoin = True

    @property
    def lacks_topics(self) -> bool:
        """Whether a topic that is subscribed to does not exist, as far as metadata says."""
        return any(topic not in self._cluster.topics for topic in self._topics)

    def on_poll(self) -> None:
        """Notes that the application lives: without a poll for max.poll.interval.ms the member leaves the group."""
        self._polled_ms = self._clock.monotonic_ms()

    def due_ms(self) -> float:
        """Returns how long a poll may sleep before it looks here again, and so shows that the application lives."""
        return min(self._settings.heartbeat_interval_ms, self._settings.max_poll_interval_ms / 2)

    @property
    def is_lost(self) -> bool:
        """Whether the membership has ended that came with the present partitions: others may own them."""
        return self._was_lost or self.generation_id < 0

    def revoked_before_join(self, owned: list[TopicPartition]) -> list[TopicPartition]:
        """Returns what to give up before a round: everything for eager members, and for any whose membership was lost."""
        return owned if not self._is_cooperative or self.generation_id < 0 else []

    def assigned(self, *, had_to_revoke: bool) -> None:
        """Notes that the assignment was taken. A cooperative member that gave something up asks for another round, which hands it on."""
        self._was_lost = False
        if had_to_revoke and self._is_cooperative:
            self.needs_rejoin = True

    def on_error(self, code: int) -> None:
        """Takes what an error of the present generation says about the membership."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs_rejoin = True
        elif code in _START_OVER or code == ErrorCode.FENCED_INSTANCE_ID:  # fenced, by its own id: the next join raises that
            self._start_over(keep_id=code != ErrorCode.UNKNOWN_MEMBER_ID)
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self.why_out = out_for_another(self._settings.group_instance_id)
        self._coordinator.on_error(code)

    def _start_over(self, *, keep_id: bool) -> None:
        self._was_lost = self._was_lost or self.generation_id >= 0
        self.generation_id = -1
        self.needs_rejoin = True
        if not keep_id:
            self.member_id = ""

    def on_failed_join(self) -> None:
        """Has the next poll join again."""
        self.needs_rejoin = True

    # A round

    async def join(self, wake: Callable[[], None]) -> list[TopicPartition]:
        """Joins, and returns the partitions assigned to this member in the group's next generation; tries while that may help.

        KafkaError when it does not; the next call tries again, a little later each time.
        """
        if self._failed_joins:
            await self._pause(self._failed_joins - 1)
        attempt = 0
        while True:
            self.needs_rejoin = False
            try:
                joined = await self._join_once()
            except KafkaError as error:
                self.on_error(error.code)
                if error.code == ErrorCode.FENCED_INSTANCE_ID or not (error.is_retriable or self._may_try_again(error.code)):
                    self._failed_joins += 1
                    raise
                await self._pause(attempt)
                attempt += 1
                continue
            self._failed_joins, self.why_out = 0, ""
            if self._heartbeats is None:
                self._heartbeats = background(self._beat(wake), name="ottla-heartbeat")
            return joined

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(self._cluster.backoff.delay_ms(attempt, self._cluster.world) / 1000)

    @staticmethod
    def _may_try_again(code: int) -> bool:
        return code in (*_START_OVER, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.BROKER_NOT_AVAILABLE)

    def _why_not(self, code: int) -> str:
        """Returns what is wrong with the client's settings, where the brokers return only the code."""
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            own = ",".join(self._settings.partition_assignment_strategy)
            return f": its members have no assignor in common with partition.assignment.strategy={own}; `ottla group describe` shows theirs"
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return f": {out_for_another(self._settings.group_instance_id)}"
        if code != ErrorCode.INVALID_SESSION_TIMEOUT:
            return ""
        keys = "group.min.session.timeout.ms and group.max.session.timeout.ms"
        return f": session_timeout_ms={self._settings.session_timeout_ms} is not between the brokers' {keys}"

    async def _join_once(self) -> list[TopicPartition]:
        topics = self._topics
        await self._cluster.refresh(topics, allow_create=self._may_create)
        if topics is self._topics:  # what a heartbeat has said meanwhile, this join does
            self.needs_rejoin = False
        response = await self._send_join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = await self._send_join()
        if response.error_code:
            raise KafkaError(response.error_code, f"joining group {self._group_id!r}{self._why_not(response.error_code)}")
        self.member_id, self.generation_id = response.member_id, response.generation_id
        self.on_poll()  # as in Java's client: that the others took long to join is not the application's fault
        self._counts = self._partition_counts(self._topics)
        protocol = response.protocol_name or ""
        assignments: list[SyncGroupRequestAssignment] = []
        if response.leader == response.member_id and not response.skip_assignment:
            assignments = await self._divide(protocol, response)
        request = SyncGroupRequest(
            self._group_id,
            self.generation_id,
            self.member_id,
            self._settings.group_instance_id,
            PROTOCOL_TYPE,
            protocol,
            assignments,
        )
        synced = await self._coordinator.ask(request, SyncGroupResponse, lane=JOIN_LANE, extra_ms=self._settings.max_poll_interval_ms)
        if synced.error_code:
            raise KafkaError(synced.error_code, f"synchronising with group {self._group_id!r}")
        assigned = decode_assignment(synced.assignment)
        self._cluster.retain({*self._topics, *self._counts, *(partition.topic for partition in assigned)})
        self._previous = Share(tuple(assigned), self.generation_id)
        return assigned

    async def _send_join(self) -> JoinGroupResponse:
        owned = Share(tuple(self._positions), self.generation_id) if self.generation_id >= 0 else Share()
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name, encode_subscription(name, self._topics, owned, self._previous))
                for name in self._settings.partition_assignment_strategy
            ],
        )
        self._is_join_out = True
        try:
            return await self._coordinator.ask(request, JoinGroupResponse, lane=JOIN_LANE, extra_ms=self._settings.max_poll_interval_ms)
        finally:
            self._is_join_out = False

    async def _divide(self, protocol: str, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        subscriptions = {
            member.member_id: decode_subscription(protocol, member.metadata, member.group_instance_id) for member in response.members
        }
        topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        await self._cluster.refresh(topics)
        self._counts = self._partition_counts(topics)
        shares = divide(protocol, subscriptions, {topic: count for topic, count in self._counts.items() if count})
        return [SyncGroupRequestAssignment(member_id, encode_assignment(share)) for member_id, share in sorted(shares.items())]

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self._cluster.topics[topic].partitions) if topic in self._cluster.topics else 0 for topic in topics}

    # Heartbeats

    async def _beat(self, wake: Callable[[], None]) -> None:
        """Runs until the group is left. Rejoining is the poll's work; here it is only asked for.

        The end of max.poll.interval.ms is looked at when it comes, and not with the next heartbeat: others wait for the partitions.
        """
        beat_ms = self._clock.monotonic_ms() + self._settings.heartbeat_interval_ms
        while True:
            now_ms, overdue_ms = self._clock.monotonic_ms(), self._polled_ms + self._settings.max_poll_interval_ms + 1
            is_member = self.generation_id >= 0 and not self._is_join_out
            if is_member and now_ms >= overdue_ms:
                self._drop_out()
                continue
            if now_ms < beat_ms:
                await asyncio.sleep((min(beat_ms, overdue_ms) - now_ms if is_member else beat_ms - now_ms) / 1000)
                continue
            beat_ms = now_ms + self._settings.heartbeat_interval_ms
            if not is_member:
                continue
            asked = self.generation_id
            request = HeartbeatRequest(self._group_id, asked, self.member_id, self._settings.group_instance_id)
            try:
                code = (await self._coordinator.ask(request, HeartbeatResponse)).error_code
            except KafkaError:
                continue  # the coordinator is looked up again; the session lasts for as long as it does
            if asked == self.generation_id and not self._is_join_out:
                self.on_error(code)
            if self.needs_rejoin:
                wake()

    def _drop_out(self) -> None:
        """Leaves, for the application does not poll. Others get its partitions; a static member's, when its session is over (KIP-345).

        It is no member from here on, whenever the coordinator answers: it may poll again before, and join with another id.
        """
        self.why_out = out_for_silence(self._group_id, self._settings.max_poll_interval_ms)
        if self._settings.group_instance_id is None:
            self._leaving = background(self._send_leave(self.member_id))
        self._start_over(keep_id=False)

    # Offsets

    async def commit(self, offsets: Mapping[TopicPartition, Place]) -> None:
        """Stores the place in each partition in this generation's name. KafkaError with the first failure."""
        asked = self.generation_id
        assert asked >= 0, "only a member commits for the group"
        try:
            await self._coordinator.commit(
                offsets, generation_id=asked, member_id=self.member_id, group_instance_id=self._settings.group_instance_id
            )
        except KafkaError as error:
            if asked == self.generation_id:
                self.on_error(error.code)
            raise

    async def look_up(self, partitions: list[TopicPartition]) -> Found:
        """Returns what the group has committed. No member has to ask."""
        return await self._coordinator.look_up(partitions)

    def metadata(self, *, is_subscribed: bool) -> GroupMetadata:
        """Returns what a transaction says of this member. ILLEGAL_GENERATION when it subscribes and is no member."""
        if not is_subscribed:
            return GroupMetadata(self._group_id)
        if self.generation_id < 0:
            raise no_member(self.why_out)
        return GroupMetadata(self._group_id, self.generation_id, self.member_id, self._settings.group_instance_id)

    # Leaving

    async def leave(self, limit_ms: int) -> None:
        """Leaves the group, unless the member is static: it may come back in time and keep its partitions."""
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        if self._leaving is not None:
            await asyncio.wait({self._leaving}, timeout=limit_ms / 1000)
        await self.close()
        if self.member_id and self._settings.group_instance_id is None:
            await self._send_leave(self.member_id, max(0, deadline_ms - self._clock.monotonic_ms()))
        self._start_over(keep_id=False)
        self.needs_rejoin = self._was_lost = False
        self._topics = []
        self._counts = {}

    async def _send_leave(self, member_id: str, limit_ms: int | None = None) -> None:
        request = LeaveGroupRequest(self._group_id, member_id, [MemberIdentity(member_id, self._settings.group_instance_id)])
        try:
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                await self._coordinator.take_leave(request, LeaveGroupResponse, limit_ms=limit_ms)
        except (KafkaError, TimeoutError):
            return  # the session times out instead

    async def close(self) -> None:
        """Stops the heartbeats, and a leave that is under way."""
        heartbeats, self._heartbeats = self._heartbeats, None
        await end(heartbeats)
        await end(self._leaving)
