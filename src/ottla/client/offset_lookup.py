"""Offsets by time, asked of the leaders: for an application, and for positions that are only known as the start or the end."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ottla.client.absent_topics import absence_of
from ottla.client.cluster import Cluster
from ottla.client.late_answers import given_up_for_another
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.types import TopicPartition

LEADER_CHANGES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""What a broker answers while it has not taken up, or given up, what the metadata says that it leads."""
LEADER_CHANGE_MS_MAX = 30_000


class FoundOffset(NamedTuple):
    """A record that was found by its time: its offset, -1 where there is none, its own time, and its leader epoch."""

    offset: int
    """The offset of the first record that is not older than the time asked for; -1 where there is none."""
    timestamp_ms: int
    """Milliseconds since 1970: that record's time; -1 where there is none, or where the start or the end was asked for."""
    leader_epoch: int
    """The epoch of the leader that stored the record; -1 where it is unknown."""


async def offsets_for_times(
    cluster: Cluster, times: dict[TopicPartition, int], *, isolation_level: int = 0, limit_ms: int = LEADER_CHANGE_MS_MAX
) -> dict[TopicPartition, FoundOffset]:
    """Returns the first record not older than each time.

    -1 and -2 stand for the end and the start. KafkaError when a partition cannot be asked; a leader that does not know yet that it leads
    is asked again until ``limit_ms`` have passed.
    """
    deadline_ms = cluster.world.clock.monotonic_ms() + limit_ms
    found: Found = {}
    attempt = 0
    while True:
        left = {partition: timestamp for partition, timestamp in times.items() if partition not in found}
        more, problems = await ask_leaders(cluster, left, isolation_level)
        found |= more
        if not problems:
            return {partition: found[partition] for partition in times}
        problem = next((error for error in problems.values() if error.code not in LEADER_CHANGES), None)
        if problem is not None:
            raise problem
        await cluster.pause(attempt, deadline_ms, next(iter(problems.values())))
        attempt += 1


Found = dict[TopicPartition, FoundOffset]


async def ask_leaders(
    cluster: Cluster, times: dict[TopicPartition, int], isolation_level: int
) -> tuple[Found, dict[TopicPartition, KafkaError]]:
    """Returns what was found, and why the others were not: a partition without a leader keeps no other one back."""
    await cluster.refresh({partition.topic for partition in times})
    found: Found = {}
    problems: dict[TopicPartition, KafkaError] = {}
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, timestamp in times.items():
        leader = cluster.leader(partition)
        if leader is None:
            absence = absence_of(cluster, partition)
            code = ErrorCode.LEADER_NOT_AVAILABLE if absence is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            problems[partition] = KafkaError(code, f"{partition} has no leader at present" if absence is None else absence)
        else:
            by_leader.setdefault(leader, {})[partition] = timestamp

    for some, failed in await asyncio.gather(
        *(ask_leader(cluster, leader, wanted, isolation_level) for leader, wanted in by_leader.items())
    ):
        found |= some
        problems |= failed
    return found, problems


async def ask_leader(
    cluster: Cluster, leader: int, times: dict[TopicPartition, int], isolation_level: int
) -> tuple[Found, dict[TopicPartition, KafkaError]]:
    """Returns what that broker has found, and why the others were not found.

    NOT_LEADER_OR_FOLLOWER when it does not answer, and others lead all of the partitions by now.
    """
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp in times.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(partition.topic))
        epoch = cluster.leader_epoch(partition)
        topic.partitions.append(ListOffsetsPartition(partition.partition, current_leader_epoch=epoch, timestamp=timestamp))
    request = ListOffsetsRequest(-1, isolation_level, list(topics.values()), cluster.request_timeout_ms)

    async def has_another() -> bool:
        await cluster.refresh(topics)
        return all(cluster.leader(partition) not in (None, leader) for partition in times)

    try:
        connection = await cluster.connection(leader)
        with given_up_for_another(cluster.world, connection, has_another):
            response = await connection.ask(request, ListOffsetsResponse, timeout_ms=cluster.request_timeout_ms)
    except KafkaError as error:
        problem = error
        try:
            if error.is_transient and await has_another():
                problem = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
        except KafkaError:  # the first one says more
            pass
        return {}, dict.fromkeys(times, problem)
    found: Found = {}
    problems: dict[TopicPartition, KafkaError] = {}
    for answer in response.topics:
        for result in answer.partitions:
            partition = TopicPartition(answer.name, result.partition_index)
            if result.error_code:
                problems[partition] = KafkaError(result.error_code, f"offsets of {partition}")
            else:
                found[partition] = FoundOffset(result.offset, result.timestamp, result.leader_epoch)
    return found, problems
