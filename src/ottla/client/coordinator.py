"""Coordinators: found, asked, found again when they have moved; and the offsets that a group's keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from ottla.client.cluster import KEY_TYPE_GROUP, MAIN_LANE, Cluster
from ottla.client.connection import ClientConnection
from ottla.client.group_metadata import GroupMetadata, Place
from ottla.client.late_answers import given_up_for_another
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse
from ottla.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
Found = tuple[dict[TopicPartition, tuple[int, int]], set[TopicPartition]]
"""Offset and leader epoch of each committed partition; and the partitions with offsets in a transaction that is open."""
LookUp = Callable[[list[TopicPartition]], Awaitable[Found]]
OFFSET_FETCH_BY_NAME: Final = 7
OFFSET_COMMIT_BY_NAME: Final = 9
EPOCHS_SINCE: Final = 9
"""From this version on OffsetCommit and OffsetFetch know the epochs of members (KIP-848)."""
_LOOK_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


GONE_MS: Final = 1_000
"""A member that leaves tries for so long where no broker answers: a close in a cluster that is gone should not take longer."""


def not_committed(topic: str, partition: int, group_id: str, code: int) -> str:
    """Returns the text of a commit that was refused with this code."""
    why = ": the topic or its partition does not exist" if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
    return f"offset of {topic}-{partition} in group {group_id!r}{why}"


class Coordinator:
    """The broker that coordinates a group or a transactional id."""

    def __init__(self, cluster: Cluster, key: str, key_type: int = KEY_TYPE_GROUP) -> None:
        self._cluster = cluster
        self.key = key
        self._key_type = key_type
        self._node_id: int | None = None

    async def connection(self, lane: str = MAIN_LANE) -> ClientConnection:
        """Returns an open connection to the coordinator, once it is found."""
        try:
            if self._node_id is None:
                self._node_id = await self._cluster.coordinator(self.key, self._key_type)
            return await self._cluster.connection(self._node_id, lane)
        except KafkaError as error:
            self.on_error(error.code)
            raise

    def on_error(self, code: int) -> None:
        """Looks for the coordinator again after an error that says that it is elsewhere."""
        if code in _LOOK_AGAIN:
            self._node_id = None

    @contextmanager
    def given_up_for_another(self, connection: ClientConnection) -> Iterator[None]:
        """Ends the connection to the coordinator when it leaves unanswered what the block asks, and another broker is the coordinator."""
        asked = self._node_id

        async def has_another() -> bool:
            return await self._cluster.coordinator(self.key, self._key_type) != asked

        with given_up_for_another(self._cluster.world, connection, has_another):
            yield


class GroupCoordinator(Coordinator):
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        super().__init__(cluster, group_id)
        self._clock = cluster.world.clock
        self._group_id = group_id

    async def ask(
        self,
        request: Request,
        response_type: type[R],
        *,
        lane: str = MAIN_LANE,
        extra_ms: int = 0,
        version_max: int | None = None,
        version_min: int = 0,
    ) -> R:
        """Returns the coordinator's response; ``extra_ms`` is how much longer than other requests this one may take."""
        connection = await self.connection(lane)
        connection.require(type(request), version_min)
        try:
            timeout_ms = self._cluster.request_timeout_ms + extra_ms
            with self.given_up_for_another(connection):
                return await connection.ask(request, response_type, timeout_ms=timeout_ms, version_max=version_max)
        except KafkaError as error:
            self.on_error(error.code)
            raise

    async def commit(
        self,
        offsets: Mapping[TopicPartition, Place],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        version_min: int = 0,
    ) -> None:
        """Stores the place in each partition. KafkaError with the first failure."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, place in offsets.items():
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(partition.topic))
            topic.partitions.append(OffsetCommitRequestPartition(partition.partition, place.offset, place.leader_epoch, place.metadata))
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=list(topics.values()),
        )
        response = await self._ask_until_found(request, OffsetCommitResponse, version_max=OFFSET_COMMIT_BY_NAME, version_min=version_min)
        for answer in response.topics:
            for result in answer.partitions:
                if result.error_code:
                    text = not_committed(answer.name, result.partition_index, self._group_id, result.error_code)
                    raise KafkaError(result.error_code, text)

    async def committed(
        self, partitions: list[TopicPartition], look_up: LookUp | None = None, *, limit_ms: int | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Returns offset and leader epoch of each committed partition, once the transactions that have commits of them have ended.

        UNSTABLE_OFFSET_COMMIT when one is open for longer than ``limit_ms``, or the time of a request. ``look_up`` is how they are found.
        """
        deadline_ms = self._clock.monotonic_ms() + (self._cluster.request_timeout_ms if limit_ms is None else limit_ms)
        attempt = 0
        while True:
            found, pending = await (look_up or self.look_up)(partitions)
            if not pending:
                return found
            text = f"a transaction that is still open has offsets of {', '.join(map(str, sorted(pending)))}"
            await self._cluster.pause(attempt, deadline_ms, KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, text))
            attempt += 1

    async def look_up(self, partitions: list[TopicPartition], member: GroupMetadata | None = None) -> Found:
        """Returns offset and leader epoch of each committed partition, and the partitions with offsets in a transaction that is open.

        ``member`` is who asks, of a group in which members have epochs.
        """
        indexes: dict[str, list[int]] = {}
        for partition in partitions:
            indexes.setdefault(partition.topic, []).append(partition.partition)
        of_group = OffsetFetchRequestGroup(self._group_id)
        topics = [OffsetFetchRequestTopic(name, found) for name, found in indexes.items()]
        version_max, version_min = OFFSET_FETCH_BY_NAME, 0
        if member is not None:
            version_max = version_min = EPOCHS_SINCE
            of_topics = [OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in indexes.items()]
            of_group = OffsetFetchRequestGroup(self._group_id, member.member_id, member.generation_id, of_topics)
        request = OffsetFetchRequest(self._group_id, topics, [of_group], True)
        response = await self._ask_until_found(request, OffsetFetchResponse, version_max=version_max, version_min=version_min)
        answer = response if member is None or not response.groups else response.groups[0]
        if answer.error_code:
            raise KafkaError(answer.error_code, f"offsets of group {self._group_id!r}")
        return _found(answer.topics)

    async def take_leave(self, request: Request, response_type: type[R], *, limit_ms: int | None = None) -> None:
        """Sends the request of a member that leaves, until the group's coordinator has it, wherever it is by now.

        It goes on as long as brokers answer that it is elsewhere, or not ready, and for ``GONE_MS`` where none answers.
        KafkaError after that, and when ``limit_ms``, or the time of a request, have passed.
        """
        await self._ask_until_found(request, response_type, limit_ms=limit_ms, gone_ms=GONE_MS)

    async def _ask_until_found(
        self,
        request: Request,
        response_type: type[R],
        *,
        version_max: int | None = None,
        version_min: int = 0,
        limit_ms: int | None = None,
        gone_ms: int | None = None,
    ) -> R:
        """Repeats the request, which must allow that, until the coordinator answers other than with "not here" or "not yet".

        For ``limit_ms``, or the time of a request; for ``gone_ms`` at most where no broker answers.
        """
        began_ms, attempt = self._clock.monotonic_ms(), 0
        longest_ms = self._cluster.request_timeout_ms if limit_ms is None else limit_ms
        while True:
            left_ms = longest_ms
            try:
                response = await self.ask(request, response_type, version_max=version_max, version_min=version_min)
                code = _first_error(response)
                if code not in _LOOK_AGAIN and code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    return response
                problem = KafkaError(code, f"coordinator of group {self._group_id!r}")
                self.on_error(code)
            except KafkaError as error:
                if not error.is_transient:
                    raise
                problem = error
                if gone_ms is not None and error.code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    left_ms = min(longest_ms, gone_ms)
            await self._cluster.pause(attempt, began_ms + left_ms, problem)
            attempt += 1


def _found(topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]) -> Found:
    found: dict[TopicPartition, tuple[int, int]] = {}
    pending: set[TopicPartition] = set()
    for topic in topics:
        for answer in topic.partitions:
            key = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                pending.add(key)
            elif answer.error_code:
                raise KafkaError(answer.error_code, f"offset of {key}")
            elif answer.committed_offset >= 0:
                found[key] = (answer.committed_offset, answer.committed_leader_epoch)
    return found, pending


def _first_error(response: Response) -> int:
    if isinstance(response, OffsetFetchResponse):
        return _first_of(response.error_code, response.topics) or max(
            (_first_of(group.error_code, group.topics) for group in response.groups), default=0
        )
    if isinstance(response, OffsetCommitResponse):
        return next((p.error_code for topic in response.topics for p in topic.partitions if p.error_code), 0)
    code: int = response.error_code  # type: ignore[attr-defined]
    return code


def _first_of(error_code: int, topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]) -> int:
    return error_code or next((partition.error_code for topic in topics for partition in topic.partitions if partition.error_code), 0)
