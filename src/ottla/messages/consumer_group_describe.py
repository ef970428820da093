"""Consumer groups of KIP-848: epochs, members, what they have and what they are to have."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string, struct, uuid


class ConsumerGroupDescribeRequest(Request, api_key=69, versions=(0, 1), flexible=0):
    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class DescribedTopicPartitions(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


class DescribedConsumer(Struct):
    member_id: str = string()
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(default=None, nullable=0)
    assignment: DescribedAssignment = struct(DescribedAssignment)
    target_assignment: DescribedAssignment = struct(DescribedAssignment)
    member_type: int = int8(default=-1, since=1)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedConsumer] = array(DescribedConsumer)
    authorized_operations: int = int32(default=-2147483648)


class ConsumerGroupDescribeResponse(Response, api_key=69, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
