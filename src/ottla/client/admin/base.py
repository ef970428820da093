"""What all parts of the admin client share: the cluster, and how an item's error is reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from ottla.client.call_limit import ANSWER_MS, DEFAULT_API_TIMEOUT_MS, waiting_for
from ottla.client.cluster import KEY_TYPE_GROUP, Cluster
from ottla.client.late_answers import given_up_for_another
from ottla.client.wrong_calls import check_name
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")
DEFAULT_TIMEOUT_MS = 30_000
"""Of a request, at the broker, where the caller says nothing."""
AT_ONCE_MAX: Final = 16
"""So many groups or transactional ids are asked for at a time."""
HasMoved = Callable[[], Awaitable[bool]]
NO_ANSWER: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE})
"""After these a request may have been carried out or not."""
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
        return await self._cluster.ask(node_id, request, response_type, timeout_ms=self._limit_ms(timeout_ms))

    def _limit_ms(self, timeout_ms: int | None) -> int:
        """Returns how long an answer may take where the caller of the method allows the broker that time."""
        least_ms = self._cluster.request_timeout_ms
        return least_ms if timeout_ms is None else max(least_ms, timeout_ms + ANSWER_MS)

    async def _ask_unless_moved(
        self,
        node_id: int,
        request: Request,
        response_type: type[R],
        has_moved: HasMoved,
        *,
        timeout_ms: int | None = None,
        version_max: int | None = None,
        version_min: int = 0,
    ) -> R:
        """Returns the broker's response. NETWORK_EXCEPTION where that is late, and what was asked for is another broker's by now."""
        connection = await self._cluster.connection(node_id)
        connection.require(type(request), version_min)
        with given_up_for_another(self._cluster.world, connection, has_moved):
            return await connection.ask(request, response_type, timeout_ms=self._limit_ms(timeout_ms), version_max=version_max)

    async def _ask_brokers(
        self, node_ids: Iterable[int] | None, request: Request, response_type: type[R], *, version_min: int = 0
    ) -> dict[int, R]:
        """Returns the response of each of the brokers, which are asked at once; of all when None. KafkaError of the first that fails.

        Where all are asked and one that hangs leaves the cluster meanwhile, the others are asked again: they have what it had.
        """

        async def has_left(node_id: int) -> bool:
            await self._cluster.refresh()
            return node_id not in self._cluster.nodes

        async def ask(node_id: int) -> R | KafkaError:
            async def once() -> R:
                gone = partial(has_left, node_id)
                response = await self._ask_unless_moved(node_id, request, response_type, gone, version_min=version_min)
                raise_for(response.error_code, None)  # type: ignore[attr-defined]  # the APIs that are asked so have one
                return response

            try:
                return await self._until_loaded(once)
            except KafkaError as error:
                return error

        while True:
            await self._cluster.refresh()
            asked = sorted(self._cluster.nodes if node_ids is None else node_ids)
            answers = dict(zip(asked, await asyncio.gather(*map(ask, asked)), strict=True))
            problems = {node_id: answer for node_id, answer in answers.items() if isinstance(answer, KafkaError)}
            if not problems:
                return {node_id: answer for node_id, answer in answers.items() if not isinstance(answer, KafkaError)}
            for node_id, problem in problems.items():
                if node_ids is not None or not problem.is_transient or not await has_left(node_id):
                    raise problem

    async def _ask_leaders(
        self, partitions: Iterable[TopicPartition], ask: Callable[[int, list[TopicPartition], HasMoved], Awaitable[dict[TopicPartition, T]]]
    ) -> dict[TopicPartition, T | KafkaError]:
        """Returns what ``ask`` returns of each leader's partitions, the leaders being asked at once; or why a partition's was not asked.

        ``ask`` must allow to be repeated: partitions whose leader failed are asked of the next one, where there is one.
        """
        results: dict[TopicPartition, T | KafkaError] = {}
        left = list(partitions)
        while left:
            leaders, orphans = await self._by_leader(left)
            results |= {key: without_leader(key) for key in orphans}
            left = []
            for some, failed in await asyncio.gather(*(self._ask_leader(leader, led, ask) for leader, led in leaders.items())):
                results |= some
                left += failed
        return results

    async def _ask_leader(
        self,
        leader: int,
        partitions: list[TopicPartition],
        ask: Callable[[int, list[TopicPartition], HasMoved], Awaitable[dict[TopicPartition, T]]],
    ) -> tuple[dict[TopicPartition, T | KafkaError], list[TopicPartition]]:
        """Returns what came of the partitions, and those that another broker leads by now."""

        async def moved() -> list[TopicPartition]:
            await self._cluster.refresh({partition.topic for partition in partitions})
            return [partition for partition in partitions if self._cluster.leader(partition) not in (None, leader)]

        async def has_moved() -> bool:
            return len(await moved()) > 0

        try:
            return dict((await ask(leader, partitions, has_moved)).items()), []
        except KafkaError as error:
            if not error.is_transient:  # it is of the call, or of the user
                raise
            elsewhere: list[TopicPartition] = []
            with contextlib.suppress(KafkaError):  # the first one says more
                elsewhere = await moved()
            return {partition: error for partition in partitions if partition not in elsewhere}, elsewhere

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

    async def _ask_coordinator(
        self,
        key: str,
        request: Request,
        response_type: type[R],
        key_type: int = KEY_TYPE_GROUP,
        *,
        version_max: int | None = None,
        is_repeatable: bool = True,
    ) -> tuple[int, R]:
        """Returns the coordinator of the group, or of the transactional id, and its response.

        What is repeatable is asked of the next one, where one leaves it unanswered and another is the coordinator by now.
        """
        while True:
            node_id = await self._coordinator(key, key_type)

            async def has_moved(asked: int = node_id) -> bool:
                return await self._cluster.coordinator(key, key_type) != asked

            try:
                return node_id, await self._ask_unless_moved(node_id, request, response_type, has_moved, version_max=version_max)
            except KafkaError as error:
                if not is_repeatable or error.code not in NO_ANSWER or not await _is_known(has_moved):
                    raise

    async def _of_each(self, keys: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T | KafkaError]:
        """Returns what ``ask`` returns for each of them, or why not; some are asked for at once."""
        results: dict[str, T | KafkaError] = {}
        places = asyncio.Semaphore(AT_ONCE_MAX)

        async def one(key: str) -> None:
            async with places:
                try:
                    results[key] = await ask(key)
                except KafkaError as error:
                    results[key] = error

        wanted = list(dict.fromkeys(keys))
        await asyncio.gather(*map(one, wanted))
        return {key: results[key] for key in wanted}

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


async def _is_known(so: HasMoved) -> bool:
    """Returns the answer; False where no broker says it: the error before says more."""
    try:
        return await so()
    except KafkaError:
        return False


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
