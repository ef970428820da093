"""One member of a classic consumer group: joining, heartbeats, commits.

A round: JoinGroup (which waits for the others), then the leader divides the partitions and everybody fetches a share with
SyncGroup. Eager strategies give up all partitions before a round; cooperative ones keep theirs, and what moves is given up
first and assigned in a second round. The mode is cooperative when every strategy of the list is.

Source: KIP-62, KIP-345, KIP-394 (member ids first), KIP-429.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.positions import Positions
from ottla.client.sharing import (
    COOPERATIVE,
    Share,
    decode_assignment,
    decode_subscription,
    divide,
    encode_assignment,
    encode_subscription,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchResponse
from ottla.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
PROTOCOL_TYPE: Final = "consumer"
OFFSET_FETCH_BY_NAME: Final = 7
OFFSET_COMMIT_BY_NAME: Final = 9
_LOOK_AGAIN: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})
_START_OVER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Kafka's consumer configuration, by its names."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    max_poll_interval_ms: int = 300_000
    group_instance_id: str | None = None
    partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky")


class GroupMembership:
    def __init__(self, cluster: Cluster, group_id: str, settings: MembershipSettings, positions: Positions) -> None:
        self._cluster = cluster
        self._clock = cluster.world.clock
        self._group_id = group_id
        self._settings = settings
        self._positions = positions
        self._is_cooperative = all(name in COOPERATIVE for name in settings.partition_assignment_strategy)
        self._topics: list[str] = []
        self._coordinator: int | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._polled_ms = 0
        self._counts: dict[str, int] = {}  # partitions by topic, as the leader divided them
        self._previous = Share()
        self.member_id = ""
        self.generation_id = -1
        self.needs_rejoin = False

    # Told by the consumer

    def subscribe(self, topics: list[str]) -> None:
        if topics != self._topics:
            self._topics = topics
            self.needs_rejoin = True

    def polled(self) -> None:
        """The application is alive: without a poll for max.poll.interval.ms the group is left."""
        self._polled_ms = self._clock.monotonic_ms()

    def due_ms(self) -> float:
        """How long a poll may sleep before it looks here again."""
        return float(self._settings.heartbeat_interval_ms)

    def revoked_before_join(self, owned: list[TopicPartition]) -> list[TopicPartition]:
        """Eager members give up everything before a round; so does anyone whose membership was lost."""
        return owned if not self._is_cooperative or self.generation_id < 0 else []

    def assigned(self, *, had_to_revoke: bool) -> None:
        """The assignment was taken. A cooperative member that gave something up asks for another round, which hands it on."""
        if had_to_revoke and self._is_cooperative:
            self.needs_rejoin = True

    def heard(self, code: int) -> None:
        """What an error says about the membership."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs_rejoin = True
        elif code in _START_OVER:
            self._start_over(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
        elif code in _LOOK_AGAIN:
            self._coordinator = None

    def _start_over(self, *, keep_id: bool) -> None:
        self.generation_id = -1
        self.needs_rejoin = True
        if not keep_id:
            self.member_id = ""

    # A round

    async def join(self, wake: Callable[[], None]) -> list[TopicPartition]:
        """The partitions assigned to this member in the group's next generation; tries until there is one."""
        attempt = 0
        while True:
            self.needs_rejoin = False
            try:
                joined = await self._join_once()
            except KafkaError as error:
                if error.code == ErrorCode.FENCED_INSTANCE_ID or not (error.is_retriable or self._may_try_again(error.code)):
                    raise
                self.heard(error.code)
                await asyncio.sleep(self._cluster.backoff.delay_ms(attempt, self._cluster.world) / 1000)
                attempt += 1
                continue
            if self._heartbeats is None:
                self._heartbeats = asyncio.get_running_loop().create_task(self._beat(wake), name="ottla-heartbeat")
            return joined

    @staticmethod
    def _may_try_again(code: int) -> bool:
        return code in (*_START_OVER, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.BROKER_NOT_AVAILABLE)

    async def _join_once(self) -> list[TopicPartition]:
        await self._cluster.refresh(self._topics, allow_create=True)
        response = await self._send_join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = await self._send_join()
        if response.error_code:
            raise KafkaError(response.error_code, f"joining group {self._group_id!r}")
        self.member_id, self.generation_id = response.member_id, response.generation_id
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
        synced = await self._ask(request, SyncGroupResponse, extra_ms=self._settings.max_poll_interval_ms)
        if synced.error_code:
            raise KafkaError(synced.error_code, f"synchronising with group {self._group_id!r}")
        assigned = decode_assignment(synced.assignment)
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
        return await self._ask(request, JoinGroupResponse, extra_ms=self._settings.max_poll_interval_ms)

    async def _divide(self, protocol: str, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        subscriptions = {
            member.member_id: decode_subscription(protocol, member.metadata, member.group_instance_id) for member in response.members
        }
        topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        await self._cluster.refresh(topics)
        self._counts = self._partition_counts(topics)
        shares = divide(protocol, subscriptions, self._counts)
        return [SyncGroupRequestAssignment(member_id, encode_assignment(share)) for member_id, share in sorted(shares.items())]

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self._cluster.topics[topic].partitions) for topic in topics if topic in self._cluster.topics}

    # Heartbeats

    async def _beat(self, wake: Callable[[], None]) -> None:
        """Runs until the group is left. Rejoining is the poll's work; here it is only asked for."""
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            if self.generation_id < 0:
                continue
            if self._clock.monotonic_ms() - self._polled_ms > self._settings.max_poll_interval_ms:
                await self._send_leave()
                self._start_over(keep_id=False)
                continue
            request = HeartbeatRequest(self._group_id, self.generation_id, self.member_id, self._settings.group_instance_id)
            try:
                code = (await self._ask(request, HeartbeatResponse)).error_code
                if not code and self._counts and not self._cluster.age_left_ms():
                    await self._cluster.refresh()
                    if self._partition_counts(self._counts) != self._counts:
                        self.needs_rejoin = True
            except KafkaError as error:
                code = error.code
            self.heard(code)
            if self.needs_rejoin:
                wake()

    # Offsets

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Offset and leader epoch of each partition are stored. KafkaError with the first failure."""
        if not offsets:
            return
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, (offset, leader_epoch) in offsets.items():
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(partition.topic))
            topic.partitions.append(OffsetCommitRequestPartition(partition.partition, offset, leader_epoch, ""))
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id if self.generation_id >= 0 else "",
            group_instance_id=self._settings.group_instance_id if self.generation_id >= 0 else None,
            topics=list(topics.values()),
        )
        response = await self._ask_until_found(request, OffsetCommitResponse, version_max=OFFSET_COMMIT_BY_NAME)
        for answer in response.topics:
            for result in answer.partitions:
                if result.error_code:
                    self.heard(result.error_code)
                    raise KafkaError(result.error_code, f"commit of {answer.name}-{result.partition_index}")

    async def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and leader epoch of each partition that has a commit."""
        topics: dict[str, OffsetFetchRequestTopic] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, OffsetFetchRequestTopic(partition.topic)).partition_indexes.append(partition.partition)
        request = OffsetFetchRequest(self._group_id, list(topics.values()), [OffsetFetchRequestGroup(self._group_id)], True)
        response = await self._ask_until_found(request, OffsetFetchResponse, version_max=OFFSET_FETCH_BY_NAME)
        if response.error_code:
            raise KafkaError(response.error_code, f"offsets of group {self._group_id!r}")
        found = {}
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    raise KafkaError(answer.error_code, f"offset of {topic.name}-{answer.partition_index}")
                if answer.committed_offset >= 0:
                    found[TopicPartition(topic.name, answer.partition_index)] = (answer.committed_offset, answer.committed_leader_epoch)
        return found

    # Leaving

    async def leave(self) -> None:
        """The group is left, unless the member is static: it may come back in time and keep its partitions."""
        await self.close()
        if self.generation_id >= 0 and self._settings.group_instance_id is None:
            await self._send_leave()
        self._start_over(keep_id=False)
        self.needs_rejoin = False
        self._topics = []

    async def _send_leave(self) -> None:
        request = LeaveGroupRequest(self._group_id, self.member_id, [MemberIdentity(self.member_id, self._settings.group_instance_id)])
        try:
            await self._ask(request, LeaveGroupResponse)
        except KafkaError:
            return  # the session times out instead

    async def close(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            self._heartbeats = None

    # Requests to the coordinator

    async def _ask(self, request: Request, response_type: type[R], *, extra_ms: int = 0, version_max: int | None = None) -> R:
        try:
            if self._coordinator is None:
                self._coordinator = await self._cluster.coordinator(self._group_id)
            connection = await self._cluster.connection(self._coordinator)
            timeout_ms = self._cluster.request_timeout_ms + extra_ms
            return await connection.ask(request, response_type, timeout_ms=timeout_ms, version_max=version_max)
        except KafkaError as error:
            self.heard(error.code)
            raise

    async def _ask_until_found(self, request: Request, response_type: type[R], *, version_max: int) -> R:
        """For requests that may be repeated: until the coordinator answers other than with "not here" or "not yet"."""
        deadline_ms = self._clock.monotonic_ms() + self._cluster.request_timeout_ms
        attempt = 0
        while True:
            try:
                response = await self._ask(request, response_type, version_max=version_max)
                code = _first_error(response)
                if code not in _LOOK_AGAIN and code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    return response
                problem = KafkaError(code, f"coordinator of group {self._group_id!r}")
                self.heard(code)
            except KafkaError as error:
                if not error.is_retriable and error.code != ErrorCode.BROKER_NOT_AVAILABLE:
                    raise
                problem = error
            await self._cluster.pause(attempt, deadline_ms, problem)
            attempt += 1


def _first_error(response: Response) -> int:
    if isinstance(response, OffsetFetchResponse):
        return response.error_code or next((p.error_code for topic in response.topics for p in topic.partitions if p.error_code), 0)
    if isinstance(response, OffsetCommitResponse):
        return next((p.error_code for topic in response.topics for p in topic.partitions if p.error_code), 0)
    return 0
