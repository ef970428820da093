"""A member of a consumer group is alive, says what has changed with it, and receives its assignment (KIP-848)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string, struct, uuid


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions=(0, 1), flexible=0):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string(), default=None, nullable=0)
    subscribed_topic_regex: str | None = string(default=None, since=1, nullable=1)
    server_assignor: str | None = string(default=None, nullable=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, default=None, nullable=0)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    member_id: str | None = string(default=None, nullable=0)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=0)
