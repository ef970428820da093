"""Starts, changes and cancels the move of replicas (KIP-455)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32(), default=None, nullable=0)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request, api_key=45, versions=(0, 1), flexible=0):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
