"""What all parts of the admin client share: the cluster, and how an item's error is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from ottla.client.call_limit import ANSWER_MS, DEFAULT_API_TIMEOUT_MS, waiting_for
from ottla.client.cluster import KEY_TYPE_GROUP, Cluster
from ottla.client.wrong_calls import check_name
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")
DEFAULT_TIMEOUT_MS = 30_000
"""Of a request, at the broker, where the caller says nothing."""
NOT_YET: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class AdminBase:
    """Owns its cluster: ``close`` closes the connections."""

    def __init__(self, cluster: Cluster, *, default_api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS) -> None:
        self._cluster = cluster
        self.default_api_timeout_ms: Final = default_api_timeout_ms

    async def close(self) -> None:
        """Closes the connections. A second call does nothing."""
        await self._cluster.close()

    async def _ask_within(self, node_id: int | None, request: Request, response_type: type[R], timeout_ms: int | None) -> R:
        """Returns the broker's response, which may take as long as the caller of the method has allowed."""
        wait_ms = None if timeout_ms is None else max(self._cluster.request_timeout_ms, timeout_ms + ANSWER_MS)
        return await self._cluster.ask(node_id, request, response_type, timeout_ms=wait_ms)

    async def _by_leader(self, partitions: Iterable[TopicPartition]) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        """Returns the partitions by their present leader, and the partitions without a leader."""
        wanted = list(partitions)
        await self._cluster.refresh({partition.topic for partition in wanted})
        leaders: dict[int, list[TopicPartition]] = {}
        orphans: list[TopicPartition] = []
        for partition in wanted:
            leader = self._cluster.leader(partition)
            if leader is None:
                orphans.append(partition)
            else:
                leaders.setdefault(leader, []).append(partition)
        return dict(sorted(leaders.items())), orphans

    async def _until_loaded(self, ask: Callable[[], Awaitable[T]], *, also: frozenset[ErrorCode] = frozenset()) -> T:
        """Returns what ``ask`` returns, called again while it raises that the coordinator is elsewhere or loading, or one of ``also``."""
        attempt = 0
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if error.code not in NOT_YET | also:
                    raise
                await self._pause(attempt, error)
                attempt += 1

    async def _pause(self, attempt: int, problem: KafkaError) -> None:
        """Waits before another try. The limit of the call ends the tries, and its error names the problem."""
        with waiting_for(f"another try after {problem}"):
            await asyncio.sleep(self._cluster.backoff.delay_ms(attempt, self._cluster.world) / 1000)

    async def _coordinator(self, key: str, key_type: int = KEY_TYPE_GROUP) -> int:
        """Returns the coordinator of the group, or of the transactional id. Waits while it is being found or loaded."""
        check_name("group_id" if key_type == KEY_TYPE_GROUP else "transactional_id", key)
        attempt = 0
        while True:
            try:
                return await self._cluster.coordinator(key, key_type)
            except KafkaError as error:
                if not error.is_retriable:
                    raise
                await self._pause(attempt, error)
                attempt += 1


def at_broker(timeout_ms: int | None) -> int:
    """Returns how long a broker may work at the request of a method that was given this limit, or none."""
    return DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms


def error_of(code: int, message: str | None) -> KafkaError | None:
    return KafkaError(code, message or "") if code else None


def raise_for(code: int, message: str | None) -> None:
    if code:
        raise KafkaError(code, message or "")


def without_leader(partition: TopicPartition) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no leader of {partition.topic}-{partition.partition} is known")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partitions' indexes, topic by topic."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics
