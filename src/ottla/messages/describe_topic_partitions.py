"""Topics and partitions in pages, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int16, int32, string, struct, uuid


class TopicRequest(Struct):
    name: str = string()


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Request, api_key=75, versions=(0, 0), flexible=0):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable=0)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    eligible_leader_replicas: list[int] | None = array(int32(), default=None, nullable=0)
    last_known_elr: list[int] | None = array(int32(), default=None, nullable=0)
    offline_replicas: list[int] = array(int32())


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable=0)
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsResponse(Response, api_key=75, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = struct(DescribeTopicPartitionsResponseCursor, nullable=0)
