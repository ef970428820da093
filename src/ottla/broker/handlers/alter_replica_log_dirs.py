"""AlterReplicaLogDirs, versions 1-2: replicas move between the log directories of this broker (KIP-113).

The answer says that a move was started; DescribeLogDirs shows how far it is. A partition that is not here is answered with
REPLICA_NOT_AVAILABLE, and made in the directory if it comes to be. v2 flexible.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation
from ottla.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.types import TopicPartition


async def handle(parts: Parts, context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    slices = Slices(parts.world.clock)
    for wanted in request.dirs:
        async for topic in slices.over(wanted.topics):
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name))
            async for index in slices.over(topic.partitions):
                code = _move(parts, wanted.path, TopicPartition(topic.name, index))
                result.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(parts: Parts, path: str, key: TopicPartition) -> ErrorCode:
    partitions = parts.partitions
    directory = next((found for found in partitions.directories if found.path == path), None)
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.is_failed or partitions.is_offline(key.topic, key.partition):
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = partitions.find(key.topic, key.partition)
    if partition is None:
        partitions.placement.prefer(key, directory)
        return ErrorCode.REPLICA_NOT_AVAILABLE
    parts.mover.move(partition, directory)
    return ErrorCode.NONE


def _refused(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name))
            result.partitions += [AlterReplicaLogDirPartitionResult(index, code) for index in topic.partitions]
    return AlterReplicaLogDirsResponse(results=list(results.values()))


SERVICE = service(AlterReplicaLogDirsRequest, handle, needs=Operation.ALTER, refused=_refused)
