"""A broker's report to the active controller: which log directories its replicas are in, or that they are in none (KIP-858)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(Struct):
    id: bytes = uuid()
    topics: list[TopicData] = array(TopicData)


class AssignReplicasToDirsRequest(Request, api_key=73, versions=(0, 0), flexible=0):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class PartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TopicResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DirectoryResult(Struct):
    id: bytes = uuid()
    topics: list[TopicResult] = array(TopicResult)


class AssignReplicasToDirsResponse(Response, api_key=73, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryResult] = array(DirectoryResult)
