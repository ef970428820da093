"""DescribeLogDirs, versions 1-5: each log directory with its replicas and their sizes.  v2 flexible; v4 space (KIP-827).

Without topics in the request, all replicas are listed, and every directory, even an empty one. A replica on its way to a directory is
listed there as a future one, with how many offsets it lacks; a follower with how many it lacks of what its leader has committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation
from ottla.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.types import TopicPartition

NOT_KNOWN: Final = -1


async def handle(parts: Parts, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        asked = ((topic.topic, index) for topic in request.topics for index in topic.partitions)
        slices, here = Slices(parts.world.clock), parts.partitions.by_name
        wanted = {TopicPartition(topic, index) async for topic, index in slices.over(asked) if index in here.get(topic, ())}
    results = []
    for directory in parts.partitions.directories:  # all of one moment: a replica that moves is listed exactly once
        held = parts.partitions.in_directory(directory)
        lags = [NOT_KNOWN if partition.lag is None else partition.lag for partition in held]
        replicas = [(found.key, found.log.size_bytes, lag, False) for found, lag in zip(held, lags, strict=True)]
        replicas += [(key, size_bytes, lag, True) for key, size_bytes, lag in parts.mover.moving_to(directory)]
        result = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR if directory.is_failed else ErrorCode.NONE, directory.path)
        result.topics = _topics(replica for replica in replicas if wanted is None or replica[0] in wanted)
        results.append(result)
    for directory, result in zip(parts.partitions.directories, results, strict=True):
        if directory.is_failed:  # where a disk was unmounted, the volume of the mount point would be shown
            continue
        try:
            result.total_bytes, result.usable_bytes = await parts.world.disk.space(directory.path)
        except OSError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        if directory.room.is_full:
            result.usable_bytes = 0  # what is left is not for records
    return DescribeLogDirsResponse(results=results)


def _topics(replicas: Iterable[tuple[TopicPartition, int, int, bool]]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for key, size_bytes, lag, is_future in replicas:
        topic = topics.setdefault(key.topic, DescribeLogDirsTopic(key.topic))
        topic.partitions.append(DescribeLogDirsPartition(key.partition, size_bytes, lag, is_future))
    return list(topics.values())


SERVICE = service(DescribeLogDirsRequest, handle, needs=Operation.DESCRIBE)
