"""What a consumer asks brokers for beside its polls: offsets by time, the start and the end of partitions.

A call goes on until ``default_api_timeout_ms`` has passed, or the ``timeout_ms`` that it is given: while a broker restarts, a leader is
elected, or a coordinator moves, there is an answer a moment later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ottla.client.absent_topics import absence_of
from ottla.client.call_limit import ended_by
from ottla.client.cluster import Cluster
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.offset_lookup import FoundOffset, offsets_for_times
from ottla.client.positions import ByPartition, PartitionLike, keyed, partitions_of
from ottla.client.wrong_calls import check_milliseconds, check_times
from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

T = TypeVar("T")


def is_absence(error: KafkaError) -> bool:
    """Returns whether it says that a topic or partition does not exist; Kafka counts that as transient, and a call does not wait for it."""
    return error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LookUps:
    """The part of a consumer that looks up offsets."""

    _cluster: Cluster
    _settings: ConsumerSettings

    async def offsets_for_times(self, times: ByPartition[int], *, timeout_ms: int | None = None) -> dict[TopicPartition, FoundOffset]:
        """Returns the first record not older than each time, in milliseconds since 1970; its offset is -1 when there is none.

        Asks again while brokers do not answer, for ``timeout_ms``, with None for ``default_api_timeout_ms``; with 0 it asks once. After
        that NETWORK_EXCEPTION, BROKER_NOT_AVAILABLE or LEADER_NOT_AVAILABLE says what is in the way, and REQUEST_TIMED_OUT what it waited
        for. UNKNOWN_TOPIC_OR_PARTITION at once for a partition that does not exist, and for a topic that the user has no right to see.
        """
        wanted = keyed(times)
        check_times(wanted)
        return await self._look_up("offsets_for_times", wanted, timeout_ms, self._settings.fetch.isolation_level_number)

    async def beginning_offsets(self, partitions: Iterable[PartitionLike], *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Returns the offset of each partition's first record. Takes as long as ``offsets_for_times``, and raises what that raises."""
        wanted = dict.fromkeys(partitions_of(partitions), EARLIEST_TIMESTAMP)
        found = await self._look_up("beginning_offsets", wanted, timeout_ms)
        return {partition: at.offset for partition, at in found.items()}

    async def end_offsets(self, partitions: Iterable[PartitionLike], *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Returns the offset after each partition's last record; with read_committed, after the last one that such a consumer may read.

        Takes as long as ``offsets_for_times``, and raises what that raises.
        """
        wanted = dict.fromkeys(partitions_of(partitions), LATEST_TIMESTAMP)
        found = await self._look_up("end_offsets", wanted, timeout_ms, self._settings.fetch.isolation_level_number)
        return {partition: at.offset for partition, at in found.items()}

    async def _look_up(
        self, call: str, wanted: dict[TopicPartition, int], timeout_ms: int | None, isolation_level: int = 0
    ) -> dict[TopicPartition, FoundOffset]:
        def ask(left_ms: int) -> Awaitable[dict[TopicPartition, FoundOffset]]:
            return offsets_for_times(self._cluster, wanted, isolation_level=isolation_level, limit_ms=left_ms)

        def is_final(error: KafkaError) -> bool:
            return is_absence(error) and any(absence_of(self._cluster, partition) is not None for partition in wanted)

        return await self._until_answered(call, ask, is_final, timeout_ms=timeout_ms)

    async def _until_answered(
        self, call: str, ask: Callable[[int], Awaitable[T]], is_final: Callable[[KafkaError], bool], *, timeout_ms: int | None = None
    ) -> T:
        """Returns what ``ask`` returns, which is given the time that is left; called again after a transient error that is not final.

        An error that ends a later try has that of the one before as its cause: the last try is short where the limit comes soon.
        """
        if timeout_ms is not None:
            check_milliseconds(timeout_ms, "leave it out for default_api_timeout_ms")
        limit_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        setting = "default_api_timeout_ms" if timeout_ms is None else "timeout_ms"
        deadline_ms = self._cluster.world.clock.monotonic_ms() + limit_ms
        attempt = 0
        problem: KafkaError | None = None
        try:
            async with ended_by(limit_ms, f"{call} has not ended in {setting}={limit_ms}"):
                while True:
                    try:
                        return await ask(deadline_ms - self._cluster.world.clock.monotonic_ms())
                    except KafkaError as error:
                        if not error.is_transient or is_final(error):
                            raise
                        problem = error
                    await self._cluster.pause(attempt, deadline_ms, problem)
                    attempt += 1
        except KafkaError as error:
            if error is problem or problem is None:
                raise
            raise error from problem
