"""New topics, one result each."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32())


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=0)


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, api_key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string(nullable=5)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: bytes = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(default=-1, since=5)
    replication_factor: int = int16(default=-1, since=5)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, nullable=5)


class CreateTopicsResponse(Response, api_key=19, versions=(2, 7), flexible=5):
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
