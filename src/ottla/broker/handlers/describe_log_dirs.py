"""DescribeLogDirs, versions 1-5: each data folder with its replicas and their sizes.  v2 flexible; v4 space (KIP-827).

Without topics in the request, all replicas are told; every folder is, even an empty one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.errors import ErrorCode
from ottla.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Broker
    from ottla.broker.partition import Partition


async def handle(broker: Broker, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = None if request.topics is None else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = []
    for path, partitions in broker.partitions.by_folder():
        result = DescribeLogDirsResult(log_dir=path)
        result.topics = _topics([partition for partition in partitions if wanted is None or (partition.topic, partition.index) in wanted])
        try:
            result.total_bytes, result.usable_bytes = await broker.world.disk.space(path)
        except OSError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _topics(partitions: list[Partition]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(partition.topic))
        topic.partitions.append(DescribeLogDirsPartition(partition.index, partition.log.size_bytes))
    return list(topics.values())
